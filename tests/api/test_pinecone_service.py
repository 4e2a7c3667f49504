"""The whole service with Pinecone as its store: processes that share nothing but the database, over a double that shows
writes later.
"""

import json
import time

import pytest

from tests.contract.vector_stores.pinecone_double import API_KEY, PineconeDouble
from tests.service import running_service

SAUCE = "The sauce needs salt, butter and a little patience."
INVOICE = "An invoice is paid within thirty days of its date."


@pytest.mark.timeout(240)  # two processes start, on a machine that may be busy
@pytest.mark.parametrize("plugin", ["pinecone", "pinecone-integrated"])
def test_documents_are_found_replaced_and_forgotten_in_pinecone(plugin: str) -> None:
    prefix = f"KB_PLUGIN_{plugin.upper().replace('-', '_')}__"
    with PineconeDouble(replica_lags_s=(0.0, 0.15), listing_lag_s=0.2) as double:
        settings = {
            "KB_VECTOR_STORE_PROVIDER_ID": plugin,
            f"{prefix}API_KEY": API_KEY,
            f"{prefix}API_URL": double.url,
        }
        with running_service(**settings) as service:
            tenant = service.tenant()
            kb = tenant.knowledge_base()
            sauce = tenant.ready(kb, SAUCE, name="sauce", external_id="sauce")
            invoice = tenant.ready(kb, INVOICE, name="invoice")

            found = tenant.search("when is an invoice paid", mode="vector", knowledge_base_ids=[kb])
            assert found["hits"][0]["document_id"] == invoice["id"], found
            assert len(found["hits"]) == 2

            tenant.ready(kb, SAUCE + " And pepper.", name="sauce", external_id="sauce")
            again = tenant.search("salt and pepper", mode="vector", knowledge_base_ids=[kb])
            assert [hit["document_id"] for hit in again["hits"]].count(sauce["id"]) == 1
            assert "pepper" in again["hits"][0]["text"]

            assert tenant.client.delete(f"/documents/{invoice['id']}").status_code == 202
            left = tenant.search("when is an invoice paid", mode="vector", knowledge_base_ids=[kb])
            assert [hit["document_id"] for hit in left["hits"]] == [sauce["id"]]
            until_empty_of(double, invoice["id"])
            for log in service.data_dir.glob("*.log"):
                assert API_KEY not in log.read_text()
        bodies = json.dumps([seen.body for seen in double.calls("upsert")])

    assert ("butter" in bodies) == (plugin == "pinecone-integrated")
    assert (double.indexes.keys() == {"stackroom-64"}) == (plugin == "pinecone")


def until_empty_of(double: PineconeDouble, document_id: str) -> None:
    deadline = time.monotonic() + 20
    [index] = double.indexes.values()
    while any(
        key.startswith(document_id)
        for namespace in index.namespaces.values()
        for key in namespace.view(namespace.listing).records
    ):
        assert time.monotonic() < deadline, "the deleted document is still in the store"
        time.sleep(0.1)
