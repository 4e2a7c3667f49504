"""A real HTTP server with OpenAI's embedding interface that misbehaves on command.

In a test: `async with EmbeddingServer() as server: server.misbehave("rate_limited", "cut")`, each for one request.
As a process: `python -m tests.unit.ai_providers.openai_server --port 9001`, then
`POST /misbehave {"once": [...], "always": ...}`.
Vectors are sums of one fixed random vector for each word, so texts that share words are close to each other.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import math
import re
import sys
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qsl, urlsplit

import numpy as np

Fault = Literal[
    "wrong_order",
    "missing_vector",
    "extra_vector",
    "repeated_index",
    "wrong_width",
    "nan",
    "zeros",
    "null",
    "base64",
    "not_json",
    "redirect",
    "unauthorized",
    "no_such_model",
    "rate_limited",
    "quota",
    "bad_request",
    "too_large",
    "context_length",
    "server_error",
    "hang",
    "cut",
    "cut_midway",
]
SECRET_OF_THE_BODY = "body-secret-8d1f"  # in every refusal: it must never be seen again
STATUSES: dict[str, tuple[int, dict[str, Any]]] = {
    "unauthorized": (401, {"code": "invalid_api_key", "message": "Incorrect API key provided"}),
    "no_such_model": (404, {"code": "model_not_found", "message": "The model does not exist"}),
    "rate_limited": (429, {"code": "rate_limit_exceeded", "message": "Rate limit reached"}),
    "quota": (429, {"code": "insufficient_quota", "type": "insufficient_quota", "message": "You exceeded your quota"}),
    "bad_request": (400, {"code": None, "type": "invalid_request_error", "message": "'$.input' is invalid."}),
    "too_large": (413, {"message": "Payload too large"}),
    "context_length": (400, {"message": "This model's maximum context length is 8192 tokens."}),
    "server_error": (500, {"message": "The server had an error"}),
}


@dataclass(frozen=True)
class Request:
    """A request as it arrived; `fault` is what became of it, None = answered well."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict[str, Any]
    fault: str | None

    @property
    def inputs(self) -> list[str]:
        """The texts of an embedding request."""
        given = self.body["input"]
        return [given] if isinstance(given, str) else given


@lru_cache(maxsize=100_000)
def word_vector(word: str, width: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
    return np.random.default_rng(seed).standard_normal(width)


def embedding_of(text: str, width: int) -> list[float]:
    """The vector that the server answers for a text; not of unit length."""
    words = re.findall(r"\w+", text.lower()) or [text]
    total: np.ndarray[Any, np.dtype[np.float64]] = np.sum([word_vector(word, width) for word in words], axis=0)
    return [round(float(value), 6) for value in total]


@dataclass
class EmbeddingServer:
    """The server; limits refuse with 413 (inputs) or 400 (characters), as real services do."""

    width: int = 1536
    api_key: str | None = None
    retry_after: str | None = None
    max_inputs: int | None = None
    max_chars_per_input: int | None = None
    max_chars: int | None = None
    always: str | None = None
    requests: list[Request] = field(default_factory=list)
    _next: deque[str] = field(default_factory=deque)
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=2**26)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    def misbehave(self, *faults: Fault | None) -> None:
        """Let the next requests fail, one each; None = this one well."""
        self._next.extend(fault or "" for fault in faults)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has gone
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        url = urlsplit(target)
        if url.path == "/misbehave":
            self.misbehave(*body.get("once", []))
            self.always = body.get("always")
            await _write(writer, 200, {})
            return True
        fault = (self._next.popleft() if self._next else None) or self.always or self._limit(headers, body)
        self.requests.append(Request(method, url.path, dict(parse_qsl(url.query)), headers, body, fault))
        if url.path.rstrip("/").rsplit("/", 1)[-1] != "embeddings" or "//" in url.path:
            await _write(writer, 404, {"error": {"message": f"no route {SECRET_OF_THE_BODY}"}})
            return True
        return await self._answer(fault, self.requests[-1], writer)

    def _limit(self, headers: dict[str, str], body: dict[str, Any]) -> str | None:
        sizes = [len(text) for text in body.get("input", [])]
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            return "unauthorized"
        if self.max_inputs is not None and len(sizes) > self.max_inputs:
            return "too_large"
        if self.max_chars_per_input is not None and max(sizes, default=0) > self.max_chars_per_input:
            return "context_length"
        return "too_large" if self.max_chars is not None and sum(sizes) > self.max_chars else None

    async def _answer(self, fault: str | None, request: Request, writer: asyncio.StreamWriter) -> bool:
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "cut":
            writer.transport.abort()
            return False
        if fault == "redirect":
            await _write(writer, 307, {}, {"Location": self.url + "/elsewhere/embeddings"})
        elif fault == "not_json":
            await _write(writer, 200, f"<html>{SECRET_OF_THE_BODY}</html>", {"Content-Type": "text/html"})
        elif fault in STATUSES:
            status, error = STATUSES[fault]
            said = f"{error['message']} {SECRET_OF_THE_BODY} {request.headers.get('authorization', '')}"
            extra = {"Retry-After": self.retry_after} if self.retry_after and status in (429, 500) else {}
            await _write(writer, status, {"error": {**error, "message": said}}, extra)
        else:
            data = self._data(fault, request)
            await _write(
                writer,
                200,
                {"object": "list", "data": data, "model": request.body["model"], "usage": {"prompt_tokens": 1}},
                cut=fault == "cut_midway",
            )
        return fault != "cut_midway"

    def _data(self, fault: str | None, request: Request) -> list[dict[str, Any]]:
        width = request.body.get("dimensions") or self.width
        vectors: list[Any] = [embedding_of(text, width) for text in request.inputs]
        if fault == "wrong_width":
            vectors[-1] = vectors[-1][:-1]
        if fault in ("nan", "null"):
            vectors[-1][0] = math.nan if fault == "nan" else None
        if fault == "zeros":
            vectors[-1] = [0.0] * width
        if fault == "base64":
            vectors = [base64.b64encode(np.asarray(row, dtype="<f4").tobytes()).decode() for row in vectors]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(vectors)]
        if fault == "wrong_order":
            data.reverse()
        if fault == "missing_vector":
            data.pop()
        if fault == "extra_vector":
            data.append({**data[-1], "index": len(data)})
        if fault == "repeated_index":
            data[-1]["index"] = 0
        return data


async def _write(
    writer: asyncio.StreamWriter, status: int, body: object, headers: dict[str, str] | None = None, *, cut: bool = False
) -> None:
    content = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})}
    head = f"HTTP/1.1 {status} -\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    writer.write(head.encode() + (content[: len(content) // 2] if cut else content))
    await writer.drain()


async def _serve(arguments: argparse.Namespace) -> None:
    server = EmbeddingServer(width=arguments.width, always=arguments.always)
    await server.start(arguments.port)
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--always", choices=get_args(Fault))
    asyncio.run(_serve(parser.parse_args()))
