"""A stand-in for a Qdrant server: its REST protocol in front of the library's local mode, as strict as a cloud's.

It refuses a wrong key, a body of more than 32 MiB, and a filter on a field without an index; what it was asked is kept
for a test to look at, and `faults` are answered before anything else.
"""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from qdrant_client import QdrantClient, models

LARGEST_BODY = 32 * 1024 * 1024


@dataclass
class Asked:
    """One request, as it came in."""

    method: str
    path: str
    query: str
    size_bytes: int
    body: Any


@dataclass
class Fault:
    """An answer in place of the real one."""

    status: int
    body: bytes = b'{"status":{"error":"as the test wishes"}}'
    headers: dict[str, str] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """One that lets a crowd knock."""

    request_queue_size = 128
    daemon_threads = True


class Refusal(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


class QdrantDouble:
    """Runs in threads of its own until `stop`."""

    def __init__(self, *, api_key: str | None = None) -> None:
        self.api_key = api_key
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.indexes: dict[str, dict[str, Any]] = {}
        self.created: dict[str, Any] = {}
        self._client = QdrantClient(":memory:")
        self._one_at_a_time = threading.Lock()
        self._server = Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def drop(self, collection: str) -> None:
        """As if somebody had removed it by hand."""
        with self._one_at_a_time:
            self._client.delete_collection(collection)
            self.indexes.pop(collection, None)

    def answer(self, asked: Asked) -> Any:
        parts = asked.path.strip("/").split("/")
        if parts[0] != "collections" or len(parts) < 2:
            raise Refusal(404, "no such route")
        name, rest = parts[1], "/".join(parts[2:])
        with self._one_at_a_time:
            return getattr(self, f"_{asked.method}_{rest.replace('/', '_')}")(name, asked.body)

    # The routes

    def _GET_exists(self, name: str, _: Any) -> Any:
        return {"exists": self._client.collection_exists(name)}

    def _PUT_(self, name: str, body: Any) -> Any:
        if self._client.collection_exists(name):
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        wanted = models.CreateCollection.model_validate(body)
        assert isinstance(wanted.vectors, models.VectorParams)
        assert wanted.vectors.distance == models.Distance.COSINE
        # By dot product, because local mode normalises anew, and a little differently, in every search by cosine.
        params = models.VectorParams(size=wanted.vectors.size, distance=models.Distance.DOT)
        self.created[name], self.indexes[name] = body, {}
        return self._client.create_collection(name, vectors_config=params)

    def _GET_(self, name: str, _: Any) -> Any:
        self._known(name)
        info = self._client.get_collection(name).model_dump(mode="json", exclude_none=True)
        info["payload_schema"] = {
            key: {"data_type": schema["type"], "params": schema, "points": 0}
            for key, schema in self.indexes[name].items()
        }
        return info

    def _DELETE_(self, name: str, _: Any) -> Any:
        self.indexes.pop(name, None)
        return self._client.delete_collection(name) if self._client.collection_exists(name) else False

    def _PUT_index(self, name: str, body: Any) -> Any:
        self._known(name)
        self.indexes[name][body["field_name"]] = body["field_schema"]
        return {"operation_id": 1, "status": "completed"}

    def _PUT_points(self, name: str, body: Any) -> Any:
        self._known(name)
        points = models.PointsList.model_validate(body).points
        for point in points:
            vector = np.array(point.vector)
            point.vector = (vector / np.linalg.norm(vector)).tolist()
        self._client.upsert(name, points)
        return {"operation_id": 1, "status": "completed"}

    def _POST_points_delete(self, name: str, body: Any) -> Any:
        self._known(name)
        selector = models.FilterSelector.model_validate(body)
        self._indexed(name, selector.filter)
        self._client.delete(name, points_selector=selector)
        return {"operation_id": 1, "status": "completed"}

    def _POST_points_query(self, name: str, body: Any) -> Any:
        self._known(name)
        asked, question = models.QueryRequest.model_validate(body), np.array(body["query"]["nearest"])
        self._indexed(name, asked.filter)
        points = self._client.query_points(
            name,
            query=question,
            query_filter=asked.filter,
            limit=asked.limit or 10,
            with_payload=asked.with_payload or False,
            with_vectors=True,
        ).points
        for point in points:
            point.score = float((np.array(point.vector) * question).sum())
            point.vector = None
        points.sort(key=lambda point: -point.score)
        return {"points": [point.model_dump(mode="json") for point in points]}

    def _POST_points_count(self, name: str, body: Any) -> Any:
        self._known(name)
        asked = models.CountRequest.model_validate(body)
        self._indexed(name, asked.filter)
        return {"count": self._client.count(name, count_filter=asked.filter).count}

    def _POST_points_scroll(self, name: str, body: Any) -> Any:
        self._known(name)
        asked = models.ScrollRequest.model_validate(body)
        self._indexed(name, asked.filter)
        points, after = self._client.scroll(
            name,
            scroll_filter=asked.filter,
            limit=asked.limit or 10,
            offset=asked.offset,
            with_payload=asked.with_payload or False,
            with_vectors=asked.with_vector or False,
        )
        return {"points": [point.model_dump(mode="json") for point in points], "next_page_offset": after}

    def _known(self, name: str) -> None:
        if not self._client.collection_exists(name):
            raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")

    def _indexed(self, name: str, wanted: models.Filter | None) -> None:
        must = [] if wanted is None or wanted.must is None else wanted.must
        for condition in must if isinstance(must, list) else [must]:
            key = getattr(condition, "key", None)
            if key not in self.indexes[name]:
                raise Refusal(400, f'Bad request: Index required but not found for "{key}"')


def _handler_of(double: QdrantDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def serve(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(data) if data else None
            asked = Asked(self.command, parts.path, parts.query, len(data), body)
            double.asked.append(asked)
            if double.faults:
                fault = double.faults.pop(0)
                return self.reply(fault.status, fault.body, fault.headers)
            try:
                if double.api_key is not None and self.headers.get("api-key") != double.api_key:
                    raise Refusal(401, "Must provide an API key")
                if len(data) > LARGEST_BODY:
                    raise Refusal(413, "payload too large")
                answer: Any = {"result": double.answer(asked), "status": "ok", "time": 0.0}
                status = 200
            except Refusal as refusal:
                answer, status = {"status": {"error": refusal.error}, "time": 0.0}, refusal.status
            return self.reply(status, json.dumps(answer).encode(), {})

        def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the other side has hung up: what an outage looks like from here
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            return

        do_GET = do_PUT = do_POST = do_DELETE = serve

    return Handler
