"""The committed API description is the code's, and the Python client generated from it does the main job."""

import importlib
import json
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.settings import Settings
from tests.service import REPOSITORY, Service

DESCRIPTION = REPOSITORY / "openapi.json"


def test_the_committed_description_is_what_the_code_says() -> None:
    said = create_app(Settings(database_url="postgresql://x@/x")).openapi()

    assert json.loads(DESCRIPTION.read_text()) == json.loads(json.dumps(said)), "run: make openapi"


def test_every_operation_has_an_id_of_its_own_and_parameters_are_never_null() -> None:
    operations = [o for path in json.loads(DESCRIPTION.read_text())["paths"].values() for o in path.values()]

    assert len({o["operationId"] for o in operations}) == len(operations)
    assert all("anyOf" not in p["schema"] for o in operations for p in o.get("parameters", []))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The package `stackroom_client`, generated."""
    folder: Path = tmp_path_factory.mktemp("client")
    program = Path(sys.executable).parent / "openapi-python-client"
    command = [
        program,
        "generate",
        "--path",
        DESCRIPTION,
        "--output-path",
        folder / "stackroom_client",
        "--meta",
        "none",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("stackroom_client")
    sys.path.remove(str(folder))


def test_the_generated_python_client_does_the_main_job(
    service: Service, generated: Any, request: pytest.FixtureRequest
) -> None:
    def call(module: str, **arguments: Any) -> Any:
        found = importlib.import_module(f"stackroom_client.api.{module}")
        return found.sync(client=client, **arguments)

    def model(kind: str, **fields: Any) -> Any:
        return getattr(importlib.import_module("stackroom_client.models"), kind)(**fields)

    tenant = service.tenant()
    key = tenant.client.headers["authorization"].removeprefix("Bearer ")
    client = generated.AuthenticatedClient(base_url=service.url, token=key, raise_on_unexpected_status=True)
    request.addfinalizer(client.get_httpx_client().close)
    kb = call("knowledge_bases.create_knowledge_base", body=model("KnowledgeBaseCreate", name="Generated"))
    file = importlib.import_module("stackroom_client.types").File(
        payload=BytesIO(b"The generated client met a heron."), file_name="heron.txt", mime_type="text/plain"
    )

    document = call("documents.upload_document", knowledge_base_id=kb.id, body=model("DocumentUpload", file=file))
    deadline = time.monotonic() + 30
    while not document.terminal and time.monotonic() < deadline:
        time.sleep(0.1)
        document = call("documents.get_document", document_id=document.id)
    answer = call("search.search", body=model("SearchRequest", query="heron", knowledge_base_ids=[kb.id]))
    listed = call("documents.list_documents", knowledge_base_id=kb.id, status=document.status)
    text = call("documents.get_document_text", document_id=document.id)
    content = call("documents.get_document_content", document_id=document.id)
    receipt = call("documents.delete_document", document_id=document.id)
    gone = call("documents.get_document", document_id=document.id)

    assert document.status == "ready"
    assert document.created_at.utcoffset() is not None
    assert [hit.document_id for hit in answer.hits] == [document.id]
    assert [item.id for item in listed.items] == [document.id]
    assert text.text == content.payload.read().decode() == "The generated client met a heron."
    assert receipt.receipt_id
    assert (gone.status, gone.code) == (404, "document_not_found")
