"""A small HTTP server on loopback that plays the REST shapes which the client commands use.

It stands in for the service, which these tests do without; the commands are tried against the real one elsewhere.
"""

import hashlib
import json
import threading
import time
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

KEY = "sk-" + "x" * 32
Json = dict[str, Any]


class ServiceDouble(ThreadingHTTPServer):
    """State in plain dictionaries. `refusals` are answered first: (status, code, headers), one a request."""

    daemon_threads = True
    page_size = 2

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bases: list[Json] = []
        self.documents: dict[str, Json] = {}
        self.contents: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.most_at_once = 0
        self.refusals: list[tuple[int, str, dict[str, str]]] = []
        self.drop_uploads = 0
        self.upload_gate: threading.Event | None = None
        self.upload_takes_s = 0.0
        self.processing_looks = 2
        self.failing: dict[str, str] = {}
        self.searches: list[Json] = []
        self.answer: Json = {"hits": [], "degraded": []}
        self.at_once = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add_base(self, name: str) -> Json:
        base = {"id": str(uuid4()), "name": name, "description": ""}
        self.bases.append(base)
        return base

    def counts(self, base_id: str) -> Json:
        counts = dict.fromkeys(("queued", "processing", "ready", "failed", "deleting"), 0)
        for document in self.documents.values():
            if document["knowledge_base_id"] == base_id:
                counts[document["status"]] += 1
        return counts

    def step(self) -> None:
        """Each look at a knowledge base brings its documents one step on."""
        for document in self.documents.values():
            if document["terminal"]:
                continue
            document["looks"] += 1
            if document["looks"] >= self.processing_looks:
                code = self.failing.get(document["external_id"])
                document["status"] = "failed" if code else "ready"
                document["error"] = (
                    {"code": code, "message": f"Because of {code}.", "retryable": False} if code else None
                )
                document["terminal"] = True

    def accept(self, base_id: str, external_id: str, name: str, data: bytes) -> Json:
        found = [d for d in self.documents.values() if d["external_id"] == external_id]
        document: Json = (
            found[0] if found else {"id": str(uuid4()), "knowledge_base_id": base_id, "external_id": external_id}
        )
        document |= {
            "name": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "status": "queued",
            "terminal": False, "error": None, "warnings": [], "looks": 0,
        }  # fmt: skip
        self.documents[document["id"]] = document
        self.contents[external_id] = data
        return document


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ServiceDouble

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if not self._welcome():
            return
        parts = path.split("/")[2:]
        if parts == ["me"]:
            self._answer(200, {"user": {}})
        elif parts == ["knowledge-bases"]:
            self._page(self.server.bases, query)
        elif not any(base["id"] == parts[1] for base in self.server.bases):
            self._refuse(404, "not_found", {})
        elif parts[2:] == ["documents"]:
            self._page([d for d in self.server.documents.values() if d["knowledge_base_id"] == parts[1]], query)
        else:
            self.server.step()
            self._answer(200, {"id": parts[1], "document_counts": self.server.counts(parts[1])})

    def do_POST(self) -> None:
        parts = urlsplit(self.path).path.split("/")[2:]
        if parts[2:] == ["documents"] and self.server.drop_uploads:
            self.server.drop_uploads -= 1
            self.connection.close()
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self._welcome():
            return
        if parts == ["knowledge-bases"]:
            self._answer(201, self.server.add_base(json.loads(body)["name"]))
        elif parts == ["search"]:
            self.server.searches.append(json.loads(body))
            self._answer(200, self.server.answer)
        else:
            self._upload(parts[1], body)

    def _upload(self, base_id: str, body: bytes) -> None:
        with self.server.lock:
            self.server.at_once += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.at_once)
        time.sleep(self.server.upload_takes_s)
        if self.server.upload_gate is not None:
            self.server.upload_gate.wait(30)
        header = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        parts: dict[str, bytes] = {
            str(part.get_param("name", header="content-disposition")): bytes(part.get_payload(decode=True))
            for part in BytesParser(policy=HTTP).parsebytes(header + body).iter_parts()
        }
        with self.server.lock:
            self.server.at_once -= 1
            external_id = parts["external_id"].decode()
            self.server.uploads.append(external_id)
            document = self.server.accept(base_id, external_id, parts["name"].decode(), parts["file"])
        self._answer(202, document)

    def _welcome(self) -> bool:
        if self.headers["authorization"] != f"Bearer {KEY}":
            self._refuse(401, "unauthenticated", {})
            return False
        if self.server.refusals and urlsplit(self.path).path != "/v1/me":
            self._refuse(*self.server.refusals.pop(0))
            return False
        return True

    def _page(self, items: list[Json], query: dict[str, list[str]]) -> None:
        start = int(query.get("cursor", ["0"])[0])
        end = start + self.server.page_size
        self._answer(200, {"items": items[start:end], "next_cursor": str(end) if end < len(items) else None})

    def _refuse(self, status: int, code: str, headers: dict[str, str]) -> None:
        self._answer(status, {"code": code, "detail": f"Refused with {code}.", "status": status}, headers)

    def _answer(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Be silent."""
