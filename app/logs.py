"""Structured logs: events with fields, never content or secrets."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

_SECRET = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{8,}|srk_[A-Za-z0-9_-]{8,}|[Bb]earer\s+[A-Za-z0-9._-]{8,})|://[^/\s:@]*:[^/\s@]+@"
)


def configure(*, level: str, form: str) -> None:
    """Send every log line, ours and the libraries', through one chain to standard error."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = structlog.dev.ConsoleRenderer() if form == "console" else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "openai", "procrastinate", "uvicorn.access", "psycopg.pool", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def redact(logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace what looks like a key or a password: the second line of defence, not the first."""
    return {key: _redacted(value) for key, value in event.items()}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET.sub("[redacted]", value)
    if isinstance(value, Mapping):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    shown = repr(value)  # what the renderer would write
    clean = _SECRET.sub("[redacted]", shown)
    return value if clean == shown else clean


def get_logger() -> Any:
    """A logger for events: `log.info("document.ingested", work_id=…, chunks=…)`."""
    return structlog.get_logger()
