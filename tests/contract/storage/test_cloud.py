"""What the cloud side adds, against a small S3 double on loopback: no real bucket is at hand here."""

import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.errors import TooLarge
from app.storage.blobs import open_blob_store
from app.storage.contract import BlobStore, StorageMisconfigured, StorageUnavailable

MIB = 1024 * 1024
STARTED = b"<InitiateMultipartUploadResult><UploadId>up</UploadId></InitiateMultipartUploadResult>"
COMPLETED = b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'


class S3Double(ThreadingHTTPServer):
    """Accepts whatever is written, answers every request with `status`, and notes methods and paths."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[str] = []
        self.status = 200


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Double

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        body = b"" if self.command != "POST" else STARTED if "uploads" in self.path else COMPLETED
        self.send_response(self.server.status)
        self.send_header("etag", '"e"')
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    server = S3Double()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def blobs(s3: S3Double) -> BlobStore:
    return open_blob_store("s3://bucket/prefix")


async def blocks(mib: int) -> AsyncIterator[bytes]:
    for _ in range(mib):
        yield bytes(MIB)


@pytest.mark.parametrize("mib", [0, 1, 4])
async def test_a_small_blob_is_one_plain_request(s3: S3Double, blobs: BlobStore, mib: int) -> None:
    await blobs.write("w/doc/1", blocks(mib))

    assert s3.requests == ["PUT /bucket/prefix/w/doc/1"]


async def test_a_large_blob_goes_in_parts(s3: S3Double, blobs: BlobStore) -> None:
    await blobs.write("w/doc/1", blocks(12))

    parts = [request for request in s3.requests if "partNumber" in request]
    assert len(parts) == 3
    assert s3.requests[-1] == "POST /bucket/prefix/w/doc/1?uploadId=up"


async def test_an_upload_over_the_limit_is_aborted_and_never_completed(s3: S3Double, blobs: BlobStore) -> None:
    with pytest.raises(TooLarge):
        await blobs.write("w/doc/1", blocks(12), max_bytes=11 * MIB)

    assert "DELETE /bucket/prefix/w/doc/1?uploadId=up" in s3.requests
    assert "POST /bucket/prefix/w/doc/1?uploadId=up" not in s3.requests


@pytest.mark.parametrize("status", [401, 403, 404])  # 404 of a write: there is no such bucket
async def test_a_cloud_that_refuses_a_write_is_a_matter_for_the_operator(
    s3: S3Double, blobs: BlobStore, status: int
) -> None:
    s3.status = status

    with pytest.raises(StorageMisconfigured):
        await blobs.write_bytes("w/doc/1", b"x")


async def test_a_cloud_that_does_not_answer_is_transient(s3: S3Double, blobs: BlobStore) -> None:
    s3.shutdown()
    s3.server_close()

    with pytest.raises(StorageUnavailable) as away:
        await blobs.read_bytes("w/doc/1")

    assert away.value.retry_after_s is not None
    assert "127.0.0.1" not in away.value.message


async def test_the_cloud_has_no_free_space_to_tell_and_nothing_to_sweep(blobs: BlobStore) -> None:
    assert await blobs.free_bytes() is None
    assert await blobs.sweep_leftovers(older_than_s=0) == 0
