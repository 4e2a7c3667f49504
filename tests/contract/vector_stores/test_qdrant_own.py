"""What the Qdrant store promises beyond the contract: requests that fit, errors by kind, imports, a free event loop."""

import asyncio
import importlib
import json
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import qdrant_client
from pydantic import BaseModel, ValidationError
from qdrant_client import models
from qdrant_client.common import client_exceptions
from qdrant_client.http import exceptions as http_exceptions

from app.errors import AppError
from app.plugins.manifest import MissingExtra
from app.plugins.registry import Registry
from app.plugins.sealing import fingerprint
from app.vector_stores.contract import (
    Space,
    VectorChunk,
    VectorStoreMisconfigured,
    VectorStoreRefused,
    VectorStoreUnavailable,
    chunk_uuid,
)
from app.vector_stores.qdrant import QdrantSettings, QdrantStore
from app.vector_stores.qdrant.errors import CollectionExists, NoSuchCollection, ours
from app.vector_stores.qdrant.points import MAX_REQUEST_BYTES
from app.vector_stores.testing.base import a_space, chunks_of, direction, random_vectors, scanned
from tests.contract.vector_stores.qdrant_double import Fault, QdrantDouble

Unexpected = http_exceptions.UnexpectedResponse


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    double = QdrantDouble()
    yield double
    double.stop()


def at(double: QdrantDouble, **settings: Any) -> QdrantStore:
    return QdrantStore(QdrantSettings.model_validate({"url": double.url, "timeout_s": 5, **settings}))


def in_memory(**settings: Any) -> QdrantStore:
    return QdrantStore(QdrantSettings.model_validate({"path": ":memory:", **settings}))


# Requests


async def test_a_write_goes_in_acknowledged_portions_of_at_most_128_points(double: QdrantDouble) -> None:
    store, work, document = at(double), uuid4(), uuid4()

    await store.write_chunks(work, document, a_space(), 1, chunks_of(random_vectors(300)))

    writes = [asked for asked in double.asked if asked.path.endswith("/points")]
    assert [len(asked.body["points"]) for asked in writes] == [128, 128, 44]
    assert all("wait=true" in asked.query for asked in writes)
    await store.close()


async def test_wide_vectors_go_in_smaller_portions(double: QdrantDouble) -> None:
    store, dims = at(double), 4_096

    await store.write_chunks(uuid4(), uuid4(), a_space(dims=dims), 1, chunks_of(random_vectors(60, dims=dims)))

    writes = [asked for asked in double.asked if asked.path.endswith("/points")]
    assert [len(asked.body["points"]) for asked in writes] == [24, 24, 12]
    assert max(asked.size_bytes for asked in writes) < 2_000_000
    await store.close()


async def test_no_request_is_larger_than_the_server_takes(double: QdrantDouble) -> None:
    """Texts of the worst kind: each character becomes six bytes of JSON."""
    store, work, document, base = at(double, store_content=True, timeout_s=60), uuid4(), uuid4(), uuid4()
    text = "\x01" * 1_000_000
    chunks = [VectorChunk(base, index, direction(index), text) for index in range(12)]

    await store.write_chunks(work, document, a_space(), 1, chunks)

    writes = [asked for asked in double.asked if asked.path.endswith("/points")]
    assert sum(len(asked.body["points"]) for asked in writes) == 12
    assert len(writes) > 1
    assert max(asked.size_bytes for asked in writes) <= MAX_REQUEST_BYTES
    assert await store.count(work, a_space()) == 12
    await store.close()


async def test_a_chunk_that_fits_no_request_is_refused_before_anything_is_written() -> None:
    store, work, base = in_memory(store_content=True), uuid4(), uuid4()
    chunks = [VectorChunk(base, 0, direction(0), "short"), VectorChunk(base, 1, direction(0), "x" * MAX_REQUEST_BYTES)]

    with pytest.raises(VectorStoreRefused):
        await store.write_chunks(work, uuid4(), a_space(), 1, chunks)

    assert await store.count(work, a_space()) == 0
    await store.close()


@pytest.mark.parametrize("store_content", [False, True])
async def test_text_leaves_the_house_only_when_it_is_asked_for(double: QdrantDouble, store_content: bool) -> None:
    store, work, document, base = at(double, store_content=store_content), uuid4(), uuid4(), uuid4()

    await store.write_chunks(work, document, a_space(), 7, [VectorChunk(base, 3, direction(0), "a secret")])

    (written,) = [asked for asked in double.asked if asked.path.endswith("/points")]
    (point,) = written.body["points"]
    assert point["id"] == str(chunk_uuid(work, a_space(), document, 7, 3))
    assert ("a secret" in json.dumps(written.body)) is store_content
    assert set(point["payload"]) - {"text"} == {
        "work_id", "space", "knowledge_base_id", "document_id", "build", "chunk_index"
    }  # fmt: skip
    await store.close()


async def test_one_collection_a_width_has_an_index_on_every_field_that_is_filtered(double: QdrantDouble) -> None:
    store = at(double)
    for work in (uuid4(), uuid4()):
        await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))

    assert list(double.created) == ["kb_8"]
    assert double.created["kb_8"]["hnsw_config"] == {"m": 0, "payload_m": 16}
    assert set(double.indexes["kb_8"]) == {"work_id", "space", "knowledge_base_id", "document_id", "build"}
    assert double.indexes["kb_8"]["work_id"]["is_tenant"] is True
    assert len([asked for asked in double.asked if asked.path.endswith("/index")]) == 5
    await store.close()


async def test_a_collection_per_space_goes_with_its_space(double: QdrantDouble) -> None:
    store, work, other = at(double, tenancy="collection"), uuid4(), uuid4()
    for one in (work, other):
        await store.write_chunks(one, uuid4(), a_space(), 1, chunks_of([direction(0)]))
    assert len(double.indexes) == 2

    await store.delete_by_work(work, a_space())

    (left,) = double.indexes
    assert other.hex in left
    await store.close()


async def test_a_collection_that_was_removed_by_hand_is_made_again(double: QdrantDouble) -> None:
    store, work, document = at(double), uuid4(), uuid4()
    await store.write_chunks(work, document, a_space(), 1, chunks_of([direction(0)]))
    double.drop("kb_8")

    assert await store.query_chunks(work, a_space(), vector=direction(0), top_k=3) == []
    await store.write_chunks(work, document, a_space(), 2, chunks_of([direction(0)]))

    assert await scanned(store, work, a_space()) == {(document, 2): 1}
    await store.close()


async def test_somebody_elses_collection_is_not_written_to(double: QdrantDouble) -> None:
    body = {"vectors": {"size": 5, "distance": "Cosine"}}
    double._PUT_("kb_8", body)
    store = at(double)

    with pytest.raises(VectorStoreMisconfigured):
        await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))

    await store.close()


async def test_an_empty_set_asks_nobody(double: QdrantDouble) -> None:
    store = at(double)

    assert await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=3, document_ids=[]) == []
    assert await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=3, knowledge_base_ids=[]) == []

    assert double.asked == []
    await store.close()


async def test_few_eligible_chunks_are_compared_one_by_one_and_a_short_answer_is_asked_again(
    double: QdrantDouble,
) -> None:
    store, work = at(double, exact_below=10), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of(random_vectors(5)))

    async def exactness(top_k: int, eligible: int | None) -> list[bool]:
        double.asked.clear()
        await store.query_chunks(work, a_space(), vector=direction(0), top_k=top_k, eligible=eligible)
        return [bool((asked.body.get("params") or {}).get("exact")) for asked in double.asked]

    assert await exactness(3, eligible=10) == [True]
    assert await exactness(3, eligible=11) == [False]
    assert await exactness(3, eligible=None) == [False]
    assert await exactness(9, eligible=None) == [False, True]
    await store.close()


async def test_a_point_without_its_payload_is_no_hit() -> None:
    """As a restart in the middle of a deletion has left them (qdrant#4627)."""
    store, work, document = in_memory(), uuid4(), uuid4()
    await store.write_chunks(work, document, a_space(), 1, chunks_of([direction(0)] * 5))
    broken = str(chunk_uuid(work, a_space(), document, 1, 2))

    await store._engine.call("delete_payload", collection_name="kb_8", keys=["chunk_index"], points=[broken])

    hits = await store.query_chunks(work, a_space(), vector=direction(0), top_k=5)
    assert [hit.chunk.chunk_index for hit in hits] == [0, 1, 3, 4]
    await store.close()


# Errors


def exception_classes() -> set[type[BaseException]]:
    """Every exception class that the SDK defines, in any of its modules."""
    found: set[type[BaseException]] = set()
    for module in pkgutil.walk_packages(qdrant_client.__path__, "qdrant_client."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, BaseException) and value.__module__.startswith("qdrant_"):
                found.add(value)
    return found


def answered(status: int, content: bytes = b"") -> Unexpected:
    return Unexpected(status, "", content, httpx.Headers())


def in_transport(source: Exception) -> Exception:
    return http_exceptions.ResponseHandlingException(source)


def a_validation_error() -> Exception:
    class Shape(BaseModel):
        number: int

    with pytest.raises(ValidationError) as failure:
        Shape.model_validate({"number": "none"})
    return failure.value


NO_COLLECTION = b'{"status":{"error":"Not found: Collection `kb_8` doesn\'t exist!"}}'
EXAMPLES: list[tuple[Exception, type[AppError]]] = [
    (http_exceptions.ApiException(), VectorStoreUnavailable),
    (client_exceptions.QdrantException(), VectorStoreUnavailable),
    (client_exceptions.ResourceExhaustedResponse("slower", 7), VectorStoreUnavailable),
    (answered(404, NO_COLLECTION), NoSuchCollection),
    (answered(404), VectorStoreMisconfigured),
    (answered(301), VectorStoreMisconfigured),
    (answered(405), VectorStoreMisconfigured),
    (answered(401), VectorStoreMisconfigured),
    (answered(403), VectorStoreMisconfigured),
    (answered(400, b'Bad request: Index required but not found for "x"'), VectorStoreMisconfigured),
    (answered(400, b"Wrong input: Vector dimension error"), VectorStoreMisconfigured),
    (answered(400, b"Wrong input: Collection `kb_8` already exists!"), CollectionExists),
    (answered(409), CollectionExists),
    (answered(400), VectorStoreRefused),
    (answered(413), VectorStoreRefused),
    (answered(422), VectorStoreRefused),
    (answered(408), VectorStoreUnavailable),
    (answered(429), VectorStoreUnavailable),
    (answered(500), VectorStoreUnavailable),
    (answered(503), VectorStoreUnavailable),
    (in_transport(httpx.ConnectError("no")), VectorStoreUnavailable),
    (in_transport(httpx.ReadTimeout("no")), VectorStoreUnavailable),
    (in_transport(httpx.RemoteProtocolError("no")), VectorStoreUnavailable),
    (in_transport(httpx.UnsupportedProtocol("no")), VectorStoreMisconfigured),
    (in_transport(httpx.InvalidURL("no")), VectorStoreMisconfigured),
    (in_transport(a_validation_error()), VectorStoreUnavailable),
    (httpx.ConnectError("no"), VectorStoreUnavailable),
    (ValueError("Collection kb_8 not found"), NoSuchCollection),
    (ValueError("Collection kb_8 already exists"), CollectionExists),
    (ValueError("something else"), VectorStoreRefused),
    (RuntimeError("QdrantLocal instance is closed. Please create a new instance."), VectorStoreUnavailable),
    (PermissionError("no"), VectorStoreMisconfigured),
    (OSError("no space left"), VectorStoreUnavailable),
    (KeyError("no"), VectorStoreRefused),
]


def test_every_exception_class_of_the_sdk_is_mapped() -> None:
    mapped = {type(error) for error, _ in EXAMPLES}

    assert exception_classes() <= mapped
    assert len(exception_classes()) >= 5


def test_every_exception_class_of_the_transport_is_mapped() -> None:
    family = [kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, httpx.HTTPError)]

    for kind in family:
        error = ours(in_transport(kind.__new__(kind)))
        assert isinstance(error, VectorStoreUnavailable | VectorStoreMisconfigured), kind
    assert len(family) > 10


@pytest.mark.parametrize(
    ("error", "family"), EXAMPLES, ids=lambda value: getattr(value, "__name__", None) or repr(value)[:60]
)
def test_an_error_of_the_sdk_becomes_the_right_one_of_ours(error: Exception, family: type[AppError]) -> None:
    assert type(ours(error)) is family


def test_a_server_that_says_when_to_come_back_is_listened_to() -> None:
    assert ours(client_exceptions.ResourceExhaustedResponse("slower", 7)).retry_after_s == 7


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        (Fault(500), VectorStoreUnavailable),
        (Fault(429, headers={"Retry-After": "3"}), VectorStoreUnavailable),
        (Fault(401), VectorStoreMisconfigured),
        (Fault(404, b"<html>nginx</html>"), VectorStoreMisconfigured),
        (Fault(200, b"<html>welcome</html>"), VectorStoreUnavailable),
        (Fault(400), VectorStoreRefused),
    ],
    ids=lambda value: f"{value.status}" if isinstance(value, Fault) else value.__name__,
)
async def test_a_failing_server_is_answered_in_our_own_words(
    double: QdrantDouble, fault: Fault, family: type[AppError]
) -> None:
    store = at(double, api_key="hunter2hunter2")
    double.faults = [fault]

    with pytest.raises(family) as failure:
        await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)

    assert type(failure.value) is family
    assert failure.value.__cause__ is not None
    assert "hunter2" not in str(failure.value)
    assert "as the test wishes" not in str(failure.value)
    assert "nginx" not in str(failure.value)
    await store.close()


async def test_a_wrong_key_is_no_temporary_absence() -> None:
    double = QdrantDouble(api_key="right")
    store = at(double, api_key="wrong")

    availability = await store.is_available()

    assert (availability.ok, availability.temporary) == (False, False)
    assert "key" in (availability.reason or "")
    await store.close()
    double.stop()


async def test_a_server_that_hangs_is_said_to_be_away_within_two_seconds() -> None:
    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await finished.wait()
        writer.close()

    finished = asyncio.Event()
    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    store = QdrantStore(QdrantSettings(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=60))

    availability = await store.is_available()

    assert (availability.ok, availability.temporary) == (False, True)
    finished.set()
    server.close()
    await store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK forgets its lock file
async def test_a_directory_is_opened_by_one_store_at_a_time(tmp_path: Path) -> None:
    first, second = (QdrantStore(QdrantSettings(path=str(tmp_path / "qdrant"))) for _ in range(2))
    work, document = uuid4(), uuid4()
    await first.write_chunks(work, document, a_space(), 1, chunks_of([direction(0)]))

    with pytest.raises(VectorStoreUnavailable, match="another process"):
        await second.count(work, a_space())
    assert not (await second.is_available()).ok
    await first.close()

    assert await second.count(work, a_space()) == 1
    await second.close()


async def test_after_closing_every_call_says_that_the_store_is_closed() -> None:
    for store in (in_memory(), QdrantStore(QdrantSettings(url="http://127.0.0.1:1"))):
        await store.close()

        with pytest.raises(VectorStoreUnavailable, match="closed"):
            await store.count(uuid4(), a_space())
        assert not (await store.is_available()).ok


# Imports

WITHOUT_THE_SDK = """
import sys
from importlib.machinery import PathFinder

class Hidden:
    find_distributions = staticmethod(PathFinder.find_distributions)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "qdrant_client":
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder] + [Hidden()]
from app.plugins.registry import Registry
from app.plugins.manifest import MissingExtra
registry = Registry.discover()
assert registry.find("qdrant") is not None, registry.broken
assert "memory" in {plugin.manifest.id for plugin in registry.plugins()}
try:
    registry.build("qdrant", registry.parse_settings("qdrant", {"path": ":memory:"}))
except MissingExtra as error:
    print(error)
"""

WITH_THE_SDK = """
import sys
from app.plugins.registry import Registry
registry = Registry.discover()
registry.manifests()
registry.build("qdrant", registry.parse_settings("qdrant", {"url": "http://127.0.0.1:1"}))
registry.build("qdrant", registry.parse_settings("qdrant", {"path": ":memory:"}))
print([name for name in sys.modules if name.partition(".")[0] in ("qdrant_client", "grpc")])
"""


def in_a_fresh_interpreter(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_a_missing_sdk_is_answered_with_the_extras_name_and_breaks_nothing_else() -> None:
    said = in_a_fresh_interpreter(WITHOUT_THE_SDK)

    assert said == "'qdrant_client' is not installed; this plugin needs: pip install 'stackroom[qdrant]'"


def test_neither_listing_nor_building_imports_the_sdk() -> None:
    assert in_a_fresh_interpreter(WITH_THE_SDK) == "[]"


def test_a_missing_sdk_is_one_of_our_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra):
        in_memory()


# The event loop


async def test_the_event_loop_turns_while_local_mode_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call into the library waits for the event loop to take a turn: were it blocked, that turn never came."""
    store, work, document, space = in_memory(), uuid4(), uuid4(), a_space()
    loop, threads, waited = asyncio.get_running_loop(), set[int](), list[str]()

    def patient(name: str) -> Any:
        method = getattr(qdrant_client.QdrantClient, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.get_ident())
            turned = threading.Event()
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(30), f"the loop stood still during {name}"
            waited.append(name)
            return method(*args, **kwargs)

        return call

    used = ("create_collection", "upsert", "query_points", "count", "scroll", "delete", "collection_exists", "close")
    for name in used:
        monkeypatch.setattr(qdrant_client.QdrantClient, name, patient(name))

    await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(300)))
    await store.query_chunks(work, space, vector=direction(0), top_k=5)
    await store.count(work, space)
    await scanned(store, work, space)
    await store.fetch_vectors(work, document, space, 1)
    await store.prune_chunks(work, document, space, 2)
    await store.delete_by_work(work, space)
    await store.is_available()
    await store.close()

    assert set(waited) == set(used)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_the_sdk_is_imported_beside_the_event_loop(double: QdrantDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    importers: list[int] = []
    monkeypatch.setattr(importlib, "import_module", lambda name: importers.append(threading.get_ident()))
    store = at(double)

    await store.count(uuid4(), a_space())

    assert importers
    assert threading.get_ident() not in importers
    await store.close()


# Settings


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"url": "http://q:6333", "path": "/data/qdrant"},
        {"url": "q:6333"},
        {"url": "ftp://q"},
        {"url": "http://user:password@q"},
        {"url": "http://q:port"},
        {"path": ""},
        {"path": "/data/qdrant", "api_key": "key"},
        {"url": "http://q", "collection_prefix": "../kb"},
        {"url": "http://q", "tenancy": "namespace"},
        {"url": "http://q", "colour": "red"},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        QdrantSettings.model_validate(values)


def test_the_key_is_never_shown() -> None:
    settings = QdrantSettings.model_validate({"url": "https://q:6333", "api_key": "hunter2"})

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()


def test_another_place_is_another_instance_and_another_key_is_not() -> None:
    def print_of(**values: object) -> str:
        return fingerprint(QdrantStore.manifest, QdrantSettings.model_validate(values), plugin=QdrantStore)

    here = print_of(url="http://q:6333")
    assert print_of(url="http://q:6333/", api_key="key", timeout_s=3, store_content=True) == here
    others = [
        print_of(url="http://r:6333"),
        print_of(path="/data/qdrant"),
        print_of(url="http://q:6333", collection_prefix="other"),
        print_of(url="http://q:6333", tenancy="collection"),
    ]
    assert len({here, *others}) == 5


def test_only_a_path_is_one_processs_own() -> None:
    abilities = QdrantStore.manifest.store

    assert abilities.is_single_process(QdrantSettings(path="/data/qdrant"))
    assert abilities.is_single_process(QdrantSettings(path=":memory:"))
    assert not abilities.is_single_process(QdrantSettings(url="http://q:6333"))
    assert Registry.discover().get("memory").manifest.store.is_single_process(QdrantSettings(path="x"))  # type: ignore[attr-defined]


def test_an_operators_path_is_marked_as_such() -> None:
    schema = QdrantSettings.model_json_schema()["properties"]

    assert schema["path"]["operator_only"] is True
    assert "operator_only" not in schema["url"]


async def test_names_of_collections_are_plain_whatever_the_model_is_called(double: QdrantDouble) -> None:
    store, work = at(double, tenancy="collection"), UUID(int=1)

    await store.write_chunks(work, uuid4(), Space(3, "../wild\0 name 多", 8), 1, chunks_of([direction(0)]))

    (name,) = double.created
    assert name.startswith(f"kb_{work.hex}_3-")
    assert name.replace("-", "").replace("_", "").isalnum()
    await store.close()


def test_the_sdk_still_has_what_local_mode_is_recognised_by() -> None:
    client = qdrant_client.QdrantClient(":memory:")
    params = models.VectorParams(size=2, distance=models.Distance.DOT)
    client.create_collection("there", vectors_config=params)

    with pytest.raises(ValueError, match="already exists") as exists:
        client.create_collection("there", vectors_config=params)
    with pytest.raises(ValueError, match="not found") as absent:
        client.count("absent")
    client.close()

    assert isinstance(ours(exists.value), CollectionExists)
    assert isinstance(ours(absent.value), NoSuchCollection)
