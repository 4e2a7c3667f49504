"""A Work's first index: a moment of slowness must not decide for ever that it has no vectors."""

import time

import psycopg

from tests.service import Service


def test_a_store_that_is_slow_at_the_first_document_does_not_leave_the_work_without_vectors(service: Service) -> None:
    """The default store's look at its database waits, as on a busy machine; a moment later all is well."""
    tenant = service.tenant()
    kb = tenant.knowledge_base()
    with psycopg.connect(service.database_url) as slow:
        slow.execute("lock table pg_catalog.pg_extension in access exclusive mode")
        first = tenant.text(kb, "the first document of a slow moment")
        time.sleep(4)
        slow.rollback()
    settled = tenant.settle(first["id"], 60)
    second = tenant.ready(kb, "the second document comes later")

    assert settled["status"] == "ready"
    for document, query in ((first, "first document of a slow moment"), (second, "second document comes later")):
        answer = tenant.client.post("/search", json={"query": query, "mode": "vector", "knowledge_base_ids": [kb]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["hits"][0]["document_id"] == document["id"]
    generations = tenant.client.get(f"/works/{tenant.work_id}/generations").json()["items"]
    assert [g["vector_store_id"] for g in generations if g["state"] == "active"] == ["pgvector"]
