"""Which storage URLs are accepted."""

import pytest

from app.storage.blobs import open_blob_store
from app.storage.contract import StorageMisconfigured


@pytest.mark.parametrize(
    "url", ["", "blobs", "/var/blobs", "http://host/path", "memory://", "ftp://x/y", "s3:bucket", "s3://"]
)
def test_a_url_that_is_no_storage_is_refused_by_name_of_its_variable(url: str) -> None:
    with pytest.raises(StorageMisconfigured, match="KB_STORAGE_URL"):
        open_blob_store(url)


def test_a_relative_directory_is_refused() -> None:
    with pytest.raises(StorageMisconfigured, match="absolute"):
        open_blob_store("file://blobs")


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket"])
def test_opening_a_cloud_does_not_contact_it(url: str) -> None:
    open_blob_store(url)
