"""The blob stores that the contract tests run against: local disk, memory, and a bucket when one is named.

A bucket (`s3://…`, `gs://…`, `az://…`) is named by KB_TEST_STORAGE_URL, its credentials by the cloud's own variables.
Without it, what the cloud adds is held by `test_cloud.py` against a small S3 double on loopback.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

from app.storage.blobs import ObstoreBlobs, open_blob_store
from app.storage.contract import BlobStore

BUCKET_VARIABLE = "KB_TEST_STORAGE_URL"


def local_disk(tmp_path: Path) -> BlobStore:
    return open_blob_store(f"file://{tmp_path / 'blobs'}")


def memory(_: Path) -> BlobStore:
    return ObstoreBlobs(MemoryStore())


def bucket(_: Path) -> BlobStore:
    return open_blob_store(f"{os.environ[BUCKET_VARIABLE].rstrip('/')}/contract-{uuid4().hex}")


BUILDERS = {"local_disk": local_disk, "memory": memory}
if BUCKET_VARIABLE in os.environ:
    BUILDERS["bucket"] = bucket


@pytest.fixture(params=BUILDERS)
async def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BlobStore]:
    store = BUILDERS[request.param](tmp_path)
    yield store
    async for key in store.list_keys():
        await store.delete(key)
    await store.close()
