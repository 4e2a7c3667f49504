"""A double of Pinecone: a real HTTP server of ours, written from the public description of API version 2026-07.

It is **not** Pinecone and says so in every answer (`Server: pinecone-double`). It knows the calls that the plugin
makes (indexes, namespaces, the Documents API), their documented limits, and the eventual consistency: each write gets
a position in its namespace's log, and every view of the data (search replicas, the listing) reads the log later.
Where the description leaves something open it takes the harsher reading: ties come in any order, replicas differ,
a namespace that is deleted takes its log positions with it.

In a test: `with PineconeDouble(replica_lags_s=(0.0, 0.2)) as double: …(api_url=double.url)`.
As a process: `python -m tests.contract.vector_stores.pinecone_double --lag 0.5`, key `double-key`.
"""

import argparse
import base64
import json
import math
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import unquote

import numpy as np

API_VERSION = "2026-07"
API_KEY = "double-key-5c1f-secret"
MAX_RECORDS, MAX_TEXT_RECORDS, MAX_IDS, MAX_TOP_K, MAX_PAGE = 1_000, 96, 1_000, 10_000, 100
MAX_UPSERT_BYTES, MAX_METADATA_BYTES, MAX_ANSWER_BYTES, MAX_ID = 2_000_000, 40 * 1024, 4 * 1024 * 1024, 512
MAX_IN_VALUES = 10_000
MODELS = {"llama-text-embed-v2": 1_024, "multilingual-e5-large": 1_024}

Fault = Literal["rate_limited", "server_error", "gateway", "hang", "cut", "garbage", "forbidden", "no_payment", "bad"]
Record = dict[str, Any]


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_ARGUMENT", message)


@dataclass
class View:
    """What one replica, or the listing, has read of a namespace's log."""

    lag_s: float
    records: dict[str, Record] = field(default_factory=dict)
    read: int = 0
    exists: bool = False


class Namespace:
    """A log of changes, and the views that read it, each at its own pace."""

    def __init__(self, replica_lags_s: tuple[float, ...], listing_lag_s: float) -> None:
        self.log: list[tuple[float, Callable[[View], None]]] = []
        self.replicas = [View(lag) for lag in replica_lags_s]
        self.listing = View(listing_lag_s)
        self._turn = 0

    def append(self, change: Callable[[View], None]) -> int:
        self.log.append((time.monotonic(), change))
        return len(self.log)

    def view(self, view: View) -> View:
        now = time.monotonic()
        while view.read < len(self.log) and self.log[view.read][0] + view.lag_s <= now:
            self.log[view.read][1](view)
            view.read += 1
        return view

    def replica(self) -> View:
        self._turn += 1
        return self.view(self.replicas[self._turn % len(self.replicas)])

    def is_gone(self) -> bool:
        views = [self.view(view) for view in (*self.replicas, self.listing)]
        return bool(self.log) and all(view.read == len(self.log) and not view.exists for view in views)


@dataclass
class Index:
    name: str
    schema: dict[str, Any]
    deployment: dict[str, Any]
    url: str
    ready_at: float
    namespaces: dict[str, Namespace] = field(default_factory=dict)

    def text_fields(self) -> dict[str, dict[str, Any]]:
        return {name: one["embed"] for name, one in self.schema["fields"].items() if one["type"] == "string"}

    def described(self) -> dict[str, Any]:
        ready = time.monotonic() >= self.ready_at
        return {
            "name": self.name,
            "status": {"ready": ready, "state": "Ready" if ready else "Initializing"},
            "schema": self.schema,
            "deployment": self.deployment,
            "deletion_protection": "disabled",
            "host": self.url,
        }


@dataclass(frozen=True)
class Seen:
    """A request that arrived: what was asked of which index, how large, with how many records or ids."""

    call: str
    size: int
    body: Any


class PineconeDouble:
    """The server. Faults: `misbehave(…)` each for one call to an index; `always` for every one until it is None;
    `project_fault` for every call to the project.
    """

    def __init__(
        self,
        *,
        replica_lags_s: tuple[float, ...] = (0.0,),
        listing_lag_s: float = 0.0,
        tells_positions: bool = True,
        delete_sees_only_visible: bool = False,
        ready_after_s: float = 0.0,
        retry_after: str = "0",
        port: int = 0,
    ) -> None:
        self._lags = (replica_lags_s, listing_lag_s)
        self._tells_positions = tells_positions
        self._delete_sees_only_visible = delete_sees_only_visible
        self._ready_after_s = ready_after_s
        self.retry_after = retry_after
        self._port = port
        self.indexes: dict[str, Index] = {}
        self.seen: list[Seen] = []
        self.always: Fault | None = None
        self.project_fault: Fault | None = None
        self._once: deque[Fault] = deque()
        self.lock = threading.RLock()
        self.released = threading.Event()
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        self.url = self._serve(None, self._port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.released.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def misbehave(self, *faults: Fault) -> None:
        self._once.extend(faults)

    def calls(self, name: str) -> list[Seen]:
        return [one for one in self.seen if one.call == name]

    def fault(self) -> Fault | None:
        return self._once.popleft() if self._once else self.always

    def _serve(self, index: str | None, port: int = 0) -> str:
        server = Server(self, index, port)
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    def project(self, method: str, path: str, body: Any) -> Any:
        """The control plane."""
        if (method, path) == ("GET", "/indexes"):
            return {"indexes": [index.described() for index in self.indexes.values()]}
        if (method, path) == ("POST", "/indexes"):
            return self._create(body)
        if method == "GET" and path.startswith("/indexes/"):
            name = unquote(path.removeprefix("/indexes/"))
            if name not in self.indexes:
                raise Refusal(404, "NOT_FOUND", f"Resource {name} not found")
            return self.indexes[name].described()
        raise Refusal(404, "NOT_FOUND", "no such route")

    def _create(self, body: Any) -> Any:
        name = body["name"]
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?", name):
            raise invalid("Name must consist of lower case alphanumeric characters or '-', at most 45")
        if name in self.indexes:
            raise Refusal(409, "ALREADY_EXISTS", "Resource already exists")
        fields = body["schema"]["fields"]
        for one in fields.values():
            if one["type"] == "dense_vector" and not 1 <= one["dimension"] <= 20_000:
                raise invalid("dimension must be 1 to 20000")
            if one["type"] == "string":
                if "embed" not in one:
                    raise invalid("a string field must be searched")
                one["embed"].setdefault("model", "llama-text-embed-v2")
                if one["embed"]["model"] not in MODELS:
                    raise Refusal(404, "NOT_FOUND", "no such model")
                one["embed"].setdefault("dimension", MODELS[one["embed"]["model"]])
                one["embed"].setdefault("metric", "cosine")
        ready_at = time.monotonic() + self._ready_after_s
        index = Index(name, body["schema"], body["deployment"], self._serve(name), ready_at)
        self.indexes[name] = index
        return index.described()

    def data(self, index: Index, method: str, path: str, body: Any, size: int) -> tuple[Any, dict[str, str]]:
        """The data plane of one index."""
        match = re.fullmatch(r"/namespaces/([^/]+)(?:/documents/(\w+))?", path)
        if match is None:
            raise Refusal(404, "NOT_FOUND", "no such route")
        name, call = unquote(match[1]), match[2]
        if not 1 <= len(name) <= 512 or not name.isascii():
            raise invalid("namespace names are 1 to 512 ASCII characters")
        self.seen.append(Seen(call or f"{method.lower()}_namespace", size, body))
        known = index.namespaces.get(name)
        if known is not None and known.is_gone():
            del index.namespaces[name]
            known = None
        if (method, call) == ("POST", "upsert"):
            records = checked_records(index, body, size)
            if known is None:
                known = index.namespaces[name] = Namespace(*self._lags)
            return {"upserted_count": len(records)}, self._position(known.append(upsert(records)))
        if known is None:
            raise Refusal(404, "NOT_FOUND", "Namespace not found")
        if (method, call) == ("DELETE", None):
            known.append(forget)
            return {}, {}
        if (method, call) == ("GET", None):
            view = known.view(known.listing)
            if not view.exists:
                raise Refusal(404, "NOT_FOUND", "Namespace not found")
            return {"name": name, "record_count": str(len(view.records))}, {}
        if (method, call) == ("POST", "delete"):
            return {}, self._position(known.append(self._deletion(index, known, body)))
        if (method, call) == ("POST", "search"):
            view = known.replica()
            answer = {"matches": search(index, view, body), "namespace": name, "usage": {"read_units": 1}}
            header = {"x-pinecone-max-indexed-lsn": str(view.read)} if self._tells_positions else {}
            return answer, header
        view = known.view(known.listing)
        if (method, call) == ("POST", "list"):
            return {**listed(view, body), "namespace": name, "usage": {"read_units": 1}}, {}
        if (method, call) == ("POST", "fetch"):
            return {"documents": fetched(index, view, body), "namespace": name, "usage": {"read_units": 1}}, {}
        raise Refusal(404, "NOT_FOUND", "no such route")

    def _position(self, position: int) -> dict[str, str]:
        return {"x-pinecone-request-lsn": str(position)} if self._tells_positions else {}

    def _deletion(self, index: Index, known: Namespace, body: Any) -> Callable[[View], None]:
        if sum(key in body for key in ("ids", "filter", "delete_all")) != 1:
            raise invalid("exactly one of ids, filter, delete_all")
        if "ids" in body:
            if not 1 <= len(body["ids"]) <= MAX_IDS:
                raise invalid(f"at most {MAX_IDS} ids")
            return delete(set(body["ids"]).__contains__)
        if "delete_all" in body:
            return delete(lambda _: True)
        wanted = predicate(index, body["filter"])
        if self._delete_sees_only_visible:
            view = known.replica()
            return delete({key for key, one in view.records.items() if wanted(one)}.__contains__)

        def change(view: View) -> None:
            for key in [key for key, one in view.records.items() if wanted(one)]:
                del view.records[key]

        return change


def upsert(records: list[Record]) -> Callable[[View], None]:
    def change(view: View) -> None:
        view.exists = True
        view.records.update({record["_id"]: record for record in records})

    return change


def delete(is_wanted: Callable[[str], bool]) -> Callable[[View], None]:
    def change(view: View) -> None:
        for key in [key for key in view.records if is_wanted(key)]:
            del view.records[key]

    return change


def forget(view: View) -> None:
    view.records.clear()
    view.exists = False


def checked_records(index: Index, body: Any, size: int) -> list[Record]:
    records: list[Record] = body["documents"]
    texts = index.text_fields()
    most = MAX_TEXT_RECORDS if texts else MAX_RECORDS
    if size > MAX_UPSERT_BYTES:
        raise Refusal(413, "PAYLOAD_TOO_LARGE", f"Request body of {size} bytes is larger than {MAX_UPSERT_BYTES}")
    if not 1 <= len(records) <= most:
        raise invalid(f"1 to {most} documents, not {len(records)}")
    if len({record["_id"] for record in records}) != len(records):
        raise invalid("duplicate _id")
    return [checked_record(index, texts, record) for record in records]


def checked_record(index: Index, texts: dict[str, Any], record: Record) -> Record:
    key = record["_id"]
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_ID or not key.isascii() or "\0" in key:
        raise invalid("_id must be 1 to 512 ASCII characters")
    kept = dict(record)
    for name, one in index.schema["fields"].items():
        value = record.get(name)
        if name in texts:
            if not isinstance(value, str) or not value:
                raise invalid(f"field '{name}' is missing")
            kept[name] = embedded(value, texts[name]["dimension"])
        elif not isinstance(value, list) or len(value) != one["dimension"]:
            raise invalid(f"field '{name}' must have {one['dimension']} numbers")
        elif not all(isinstance(x, int | float) and math.isfinite(x) for x in value) or not any(value):
            raise invalid(f"field '{name}' must be finite and not zero")
    metadata = {name: value for name, value in record.items() if name != "_id" and name not in index.schema["fields"]}
    if len(json.dumps(metadata).encode()) > MAX_METADATA_BYTES:
        raise invalid("metadata is larger than 40 KB")
    for name, value in metadata.items():
        strings = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not isinstance(value, str | int | float | bool) and not strings:
            raise invalid(f"metadata '{name}' must be a string, number, boolean or list of strings")
    return kept


def predicate(index: Index, wanted: Any) -> Callable[[Record], bool]:
    if not isinstance(wanted, dict) or not wanted:
        raise invalid("a filter must be a non-empty object")
    parts: list[Callable[[Record], bool]] = []
    for name, condition in wanted.items():
        if name in ("$and", "$or"):
            inner = [predicate(index, one) for one in condition]
            together = all if name == "$and" else any
            parts.append(lambda record, inner=inner, together=together: together(one(record) for one in inner))
        elif name in index.schema["fields"]:
            raise invalid(f"field '{name}' is a data field: comparison operators are not allowed")
        else:
            parts += [comparison(name, operator, value) for operator, value in condition.items()]
    return lambda record: all(part(record) for part in parts)


def comparison(name: str, operator: str, value: Any) -> Callable[[Record], bool]:
    if operator == "$in":
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_IN_VALUES:
            raise invalid(f"$in takes 1 to {MAX_IN_VALUES} values")
        members = set(value)
        return lambda record: record.get(name) in members
    compare: dict[str, Callable[[Any], bool]] = {
        "$eq": lambda found: bool(found == value),
        "$lt": lambda found: isinstance(found, int | float) and found < value,
        "$gte": lambda found: isinstance(found, int | float) and found >= value,
    }
    if operator not in compare:
        raise invalid(f"unknown operator {operator}")
    return lambda record: compare[operator](record.get(name))


def search(index: Index, view: View, body: Any) -> list[dict[str, Any]]:
    [clause] = body["score_by"]
    top_k = body["top_k"]
    if not 1 <= top_k <= MAX_TOP_K:
        raise invalid("top_k must be 1 to 10000")
    schema = index.schema["fields"].get(clause["field"])
    if schema is None:
        raise invalid("no such field")
    if clause["type"] == "embed":
        question = np.array(embedded(clause["query"], schema["embed"]["dimension"]))
    elif clause["type"] == "dense_vector" and schema["type"] == "dense_vector":
        question = np.array(clause["values"], dtype=np.float64)
        if len(question) != schema["dimension"]:
            raise invalid(f"Vector dimension {len(question)} does not match {schema['dimension']}")
    else:
        raise invalid("this field can't be scored so")
    fields = body.get("include_fields") or []
    if hidden := [name for name in fields if index.schema["fields"].get(name, {}).get("store_text") is False]:
        raise invalid(f"the text of {hidden} is not stored")
    wanted = predicate(index, body["filter"]) if "filter" in body else (lambda _: True)
    records = [record for record in view.records.values() if wanted(record)]
    if not records:
        return []
    random.shuffle(records)
    rows = np.array([record[clause["field"]] for record in records])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = (rows * (question / np.linalg.norm(question))).sum(axis=1)
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [
        {
            "_id": records[at]["_id"],
            "_score": float(scores[at]),
            **{n: records[at][n] for n in fields if n in records[at]},
        }
        for at in order
    ]


def listed(view: View, body: Any) -> dict[str, Any]:
    limit = body.get("limit", MAX_PAGE)
    if not 1 <= limit <= MAX_PAGE:
        raise invalid("limit must be 1 to 100")
    after = base64.b64decode(body["pagination_token"]).decode() if "pagination_token" in body else ""
    keys = sorted(key for key in view.records if key.startswith(body.get("prefix", "")) and key > after)
    page: dict[str, Any] = {"documents": [{"_id": key} for key in keys[:limit]]}
    if len(keys) > limit:
        page["pagination"] = {"next": base64.b64encode(keys[limit - 1].encode()).decode()}
    return page


def fetched(index: Index, view: View, body: Any) -> dict[str, Any]:
    if not 1 <= len(body["ids"]) <= MAX_IDS:
        raise invalid(f"at most {MAX_IDS} ids")
    fields = body.get("include_fields")
    hidden = index.text_fields()
    found = {key: view.records[key] for key in body["ids"] if key in view.records}
    return {
        key: {n: v for n, v in one.items() if n == "_id" or (n not in hidden and (fields is None or n in fields))}
        for key, one in found.items()
    }


def embedded(text: str, dims: int) -> list[float]:
    """The sum of one fixed random vector for each word: texts that share words are close to each other."""
    total = np.zeros(dims)
    for word in re.findall(r"\w+", text.lower()) or ["?"]:
        total += np.random.default_rng(list(word.encode())).normal(size=dims)
    rounded: list[float] = total.round(6).tolist()
    return rounded


class Server(ThreadingHTTPServer):
    """One port: that of the project, or of one index."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, double: PineconeDouble, index: str | None, port: int) -> None:
        self.double, self.index = double, index
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no fault of the server's."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 60

    def version_string(self) -> str:
        return "pinecone-double"

    def log_message(self, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        double = self.server.double
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = double.fault() if self.server.index else double.project_fault
        if fault in ("hang", "cut"):
            if fault == "hang":
                double.released.wait(60)
            self.close_connection = True
            return
        if fault == "garbage":
            self._send(200, b"<html>a proxy</html>", {})
            return
        headers: dict[str, str] = {}
        try:
            self._check(fault)
            body = json.loads(raw) if raw else None
            with double.lock:
                if self.server.index is None:
                    answer = double.project(self.command, self.path.partition("?")[0], body)
                else:
                    index = double.indexes[self.server.index]
                    answer, headers = double.data(index, self.command, self.path, body, len(raw))
            status = 201 if (self.command, self.path) == ("POST", "/indexes") else 200
        except Refusal as refusal:
            status, answer = refusal.status, {"error": {"code": refusal.code, "message": refusal.message}}
            if status == 429:
                headers["Retry-After"] = double.retry_after
        encoded = json.dumps(answer).encode()
        if len(encoded) > MAX_ANSWER_BYTES:
            status, encoded = 400, b'{"error": {"code": "OUT_OF_RANGE", "message": "result larger than 4 MB"}}'
        self._send(status, encoded, headers)

    def _check(self, fault: Fault | None) -> None:
        told = dict(self.headers.items())
        if self.headers.get("Api-Key") != API_KEY:
            raise Refusal(401, "UNAUTHENTICATED", f"Invalid API Key, headers were {told}")
        if self.headers.get("X-Pinecone-Api-Version") != API_VERSION:
            raise invalid(f"this double speaks {API_VERSION}")
        refusals = {
            "rate_limited": Refusal(429, "RESOURCE_EXHAUSTED", f"Too many requests, headers were {told}"),
            "server_error": Refusal(500, "INTERNAL", f"Internal error, headers were {told}"),
            "gateway": Refusal(503, "UNAVAILABLE", f"Unavailable, headers were {told}"),
            "forbidden": Refusal(403, "FORBIDDEN", f"Quota reached, headers were {told}"),
            "no_payment": Refusal(402, "PAYMENT_REQUIRED", f"Pay first, headers were {told}"),
            "bad": Refusal(400, "INVALID_ARGUMENT", f"Bad request, headers were {told}"),
        }
        if fault is not None:
            raise refusals[fault]

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + body)  # in one piece: two would wait for each other (Nagle)
        self.flush_headers()


def main() -> None:
    """Run the double until it is interrupted, and print what a plugin needs to find it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lag", type=float, default=0.0, help="seconds until writes are seen")
    asked = parser.parse_args()
    with PineconeDouble(replica_lags_s=(0.0, asked.lag), listing_lag_s=asked.lag, port=asked.port) as double:
        print(f"KB_PLUGIN_PINECONE__API_URL={double.url} KB_PLUGIN_PINECONE__API_KEY={API_KEY}", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()
