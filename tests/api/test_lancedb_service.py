"""The service with LanceDB as its store: an API process and two workers on one directory."""

import time
from collections.abc import Iterator

import pytest

from tests.service import Service, Tenant, running_service


@pytest.fixture(scope="module")
def lancedb_service() -> Iterator[Service]:
    with running_service(workers=2, KB_VECTOR_STORE_PROVIDER_ID="lancedb") as service:
        yield service


def found(tenant: Tenant, words: str) -> list[str]:
    """Documents found by meaning; the first answers may come by words alone, while the package is being loaded."""
    deadline = time.monotonic() + 60
    while True:
        answer = tenant.search(words, mode="hybrid")
        if not answer["degraded"]:
            return [hit["document_id"] for hit in answer["hits"]]
        assert time.monotonic() < deadline, answer["degraded"]
        time.sleep(0.2)


@pytest.mark.timeout(300)  # three processes load the package side by side
def test_documents_are_written_by_one_process_found_by_another_and_deleted_by_a_third(lancedb_service: Service) -> None:
    tenant = lancedb_service.tenant()
    kb = tenant.knowledge_base()
    made = [tenant.text(kb, text) for text in ("apples and pears", "ships and harbours", "stars and planets")]
    for document in made:
        assert tenant.settle(document["id"], timeout_s=90)["status"] == "ready"

    assert found(tenant, "ships and harbours")[0] == made[1]["id"]
    by_vector = tenant.search("ships and harbours", mode="vector")
    assert {hit["document_id"] for hit in by_vector["hits"]} == {document["id"] for document in made}
    tables = [path for path in (lancedb_service.data_dir / "lancedb").iterdir() if path.name.endswith(".lance")]
    assert len(tables) == 1

    assert tenant.client.delete(f"/documents/{made[1]['id']}").status_code == 202
    assert made[1]["id"] not in found(tenant, "ships and harbours")
    deadline = time.monotonic() + 60
    while (receipt := tenant.client.get(f"/documents/{made[1]['id']}/deletion").json())["state"] != "closed":
        assert time.monotonic() < deadline, receipt
        time.sleep(0.2)
    assert all(store["remaining"] == 0 for store in receipt["stores"])
