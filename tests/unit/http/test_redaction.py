"""The log's second line of defence: what looks like a key or a password does not leave the process."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from app import logs

SECRETS = [
    "srk_0123456789abcdefghijklmnop",
    "sk-proj-0123456789abcdef",
    "Bearer abcdefgh.ijklmnop-qrst",
    "bearer abcdefghijklmnop",
    "postgresql://user:hunter2hunter2@host/db",
    "https://:hunter2hunter2@proxy.example:8080/x",
]
CORE = ["0123456789abcdef", "ijklmnop", "hunter2hunter2"]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    handlers, level = logging.getLogger().handlers, logging.getLogger().level
    logs.configure(level="info", form="json")
    yield stream
    logging.getLogger().handlers = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def assert_clean(text: str) -> None:
    assert "[redacted]" in text
    assert [core for core in CORE if core in text] == []


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_field_is_replaced(written: io.StringIO, secret: str) -> None:
    logs.get_logger().info("something.happened", detail=f"called with {secret} today")

    assert_clean(written.getvalue())
    assert json.loads(written.getvalue())["event"] == "something.happened"


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_inside_a_list_or_a_mapping_is_replaced(written: io.StringIO, secret: str) -> None:
    logs.get_logger().info("something.happened", detail={"inner": [secret, {"deep": secret}]}, pair=(1, secret))

    assert_clean(written.getvalue())


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_value_of_another_type_is_replaced(written: io.StringIO, secret: str) -> None:
    logs.get_logger().info("something.happened", error=RuntimeError(secret))

    assert_clean(written.getvalue())


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_an_exception_is_replaced(written: io.StringIO, secret: str) -> None:
    try:
        raise RuntimeError(secret)
    except RuntimeError:
        logs.get_logger().exception("something.crashed")

    assert_clean(written.getvalue())
    assert "Traceback" in json.loads(written.getvalue())["exception"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_librarys_line_is_replaced(written: io.StringIO, secret: str) -> None:
    logging.getLogger("some.library").warning("could not reach %s", secret)

    assert_clean(written.getvalue())


def test_what_is_no_secret_stays(written: io.StringIO) -> None:
    logs.get_logger().info("request", path="/v1/me", took_ms=1.5, url="https://host:8080/a@b", task="risk-assessment-2")

    line = json.loads(written.getvalue())
    assert (line["path"], line["took_ms"], line["url"]) == ("/v1/me", 1.5, "https://host:8080/a@b")
    assert line["task"] == "risk-assessment-2"
