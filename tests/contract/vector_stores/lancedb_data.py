"""Places for the LanceDB tests: an S3-compatible server on loopback, and an address where nobody answers.

The server is the package `localbucket`: buckets are directories, and a write with `If-None-Match: *` is decided by the
file system, which is what LanceDB's commits rest on. Deleting many objects by one request is added here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree

from localbucket import S3Handler

from app.vector_stores.lancedb import LanceDbSettings

IMPATIENT = {"client_max_retries": "0", "client_retry_timeout": "1", "connect_timeout": "1s"}
CREDENTIALS = {"aws_access_key_id": "an-id", "aws_secret_access_key": "a-secret"}

NOWHERE = LanceDbSettings(
    uri="s3://bucket/prefix",
    endpoint="http://127.0.0.1:1",
    region="us-east-1",
    storage_options={**CREDENTIALS, **IMPATIENT},
)


@dataclass(frozen=True)
class LoopbackS3:
    """A server with one bucket, which is a directory. Whatever is in `answers` it answers with instead."""

    endpoint: str
    directory: Path
    answers: list[tuple[int, str]]

    def settings(self, *, bucket: str = "bucket", prefix: str | None = None) -> LanceDbSettings:
        """A place of one's own in it."""
        return LanceDbSettings(
            uri=f"s3://{bucket}/{prefix or uuid4().hex}",
            endpoint=self.endpoint,
            region="us-east-1",
            storage_options={**CREDENTIALS, **IMPATIENT},
            search_timeout_s=60,  # the server shares its processor with everything that waits for it
        )


@contextmanager
def serve_s3(directory: Path) -> Iterator[LoopbackS3]:
    """Run the server in threads of this process."""
    (directory / "bucket").mkdir(parents=True)
    answers: list[tuple[int, str]] = []

    class Handler(_Handler):
        data_root = directory
        faults = answers

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield LoopbackS3(f"http://127.0.0.1:{server.server_port}", directory / "bucket", answers)
    server.shutdown()
    server.server_close()


class _Handler(S3Handler):  # type: ignore[misc]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are sent apart: 40 ms for each request otherwise
    faults: list[tuple[int, str]] = []  # noqa: RUF012

    def _dispatch(self, action: object) -> None:
        if not self.faults:
            super()._dispatch(action)
            return
        status, code = self.faults[0]
        self._read_body()
        self._send(HTTPStatus(status), f"<Error><Code>{code}</Code></Error>".encode())

    def _post_request(self, bucket: str, key: str) -> None:
        if key or "delete" not in self.query:
            super()._post_request(bucket, key)
            return
        listed = ElementTree.fromstring(self._read_body())
        names = [str(item.text) for item in listed.iter() if item.tag.rpartition("}")[2] == "Key"]
        for name in names:
            self._object_path(bucket, name).unlink(missing_ok=True)
        deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        self._send(HTTPStatus.OK, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def log_message(self, *_: object) -> None:
        """Be silent."""
