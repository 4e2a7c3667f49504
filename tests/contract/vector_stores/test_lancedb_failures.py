"""What the LanceDB store makes of a place that is away, refuses, is full, or was never installed."""

import asyncio
import importlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError

from app.errors import AppError, Misconfigured, Unavailable
from app.plugins.manifest import MissingExtra
from app.plugins.registry import Registry
from app.plugins.sealing import Sealer, fingerprint
from app.vector_stores.contract import (
    Space,
    VectorStoreMisconfigured,
    VectorStoreRefused,
    VectorStoreUnavailable,
)
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore, database
from app.vector_stores.lancedb.failures import PERMANENT, TRANSIENT, Contended, TableGone, name_of, ours, translated
from app.vector_stores.lancedb.places import Place
from app.vector_stores.testing.base import a_space, chunks_of, direction
from tests.contract.vector_stores.lancedb_data import NOWHERE, LoopbackS3

VENDORS_MODULES = ("lancedb", "lancedb.exceptions", "lancedb.remote.errors", "pyarrow.lib")


async def error_of(store: LanceDbStore) -> AppError:
    with pytest.raises(AppError) as failure:
        await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
    await store.close()
    return failure.value


def vendors_classes() -> Iterator[type[BaseException]]:
    for name in VENDORS_MODULES:
        for kind in vars(importlib.import_module(name)).values():
            if inspect.isclass(kind) and issubclass(kind, BaseException) and kind.__module__ != "builtins":
                yield kind


def test_every_class_of_error_that_the_package_has_is_known_to_be_transient_or_permanent() -> None:
    found = {name_of(kind) for kind in vendors_classes() if kind.__module__.split(".")[0] in ("lancedb", "pyarrow")}

    assert found
    assert found - PERMANENT - TRANSIENT == set()
    assert set() == PERMANENT & TRANSIENT


@pytest.mark.parametrize("kind", sorted(set(vendors_classes()), key=name_of), ids=name_of)
def test_each_of_them_becomes_one_of_ours(kind: type[BaseException]) -> None:
    error = kind.__new__(kind, "details with a secret")

    with pytest.raises(AppError) as failure, translated():
        raise error

    assert isinstance(failure.value, VectorStoreUnavailable | VectorStoreRefused | VectorStoreMisconfigured)
    assert "secret" not in failure.value.message
    assert failure.value.__cause__ is error


TEXTS: list[tuple[BaseException, type[BaseException]]] = [  # as LanceDB 0.40 words them
    (ValueError("Table 'kb_1' was not found"), TableGone),
    (RuntimeError("lance error: Not found: data/kb_1.lance/_versions, /root/.cargo/commit.rs:653:26"), TableGone),
    (RuntimeError("External error: Not found: data/kb_1.lance/data/01.lance, /root/local.rs:273:40"), Contended),
    (RuntimeError("lance error: Retryable commit conflict for version 12: This Rewrite transaction was"), Contended),
    (RuntimeError("lance error: Too many concurrent writers. "), Contended),
    (ValueError("Table 'kb_1' already exists"), Contended),
    (OSError("failed to write: No space left on device (os error 28)"), VectorStoreUnavailable),
    (OSError("Unable to created lance dataset at /x: Permission denied (os error 13)"), VectorStoreMisconfigured),
    (RuntimeError("lance error: LanceError(IO): Read-only file system (os error 30)"), VectorStoreMisconfigured),
    (ValueError("Failed to connect to namespace: RetryError Status { status: 403, body"), VectorStoreMisconfigured),
    (ValueError("status: 404, body: <Error><Code>NoSuchBucket</Code>"), VectorStoreMisconfigured),
    (ValueError("Invalid input, No object store provider found for scheme: 'zz'"), VectorStoreMisconfigured),
    (ValueError("Failed to connect to namespace: tcp connect error, 127.0.0.1:1"), VectorStoreUnavailable),
    (RuntimeError("Generic S3 error: Status { status: 503, body: SlowDown }"), VectorStoreUnavailable),
    (RuntimeError("operation timed out"), VectorStoreUnavailable),
    (RuntimeError("Connection is closed"), VectorStoreUnavailable),
    (RuntimeError("Too many open files (os error 24)"), VectorStoreUnavailable),
    (TimeoutError(), VectorStoreUnavailable),
    (ConnectionResetError("x"), VectorStoreUnavailable),
    (MemoryError(), VectorStoreUnavailable),
    (ValueError("Invalid input, No vector column found to match with the dimension: 5"), VectorStoreRefused),
    (NotImplementedError("not here"), VectorStoreRefused),
    (TypeError("no"), VectorStoreRefused),
]  # fmt: skip


@pytest.mark.parametrize(("error", "kind"), TEXTS, ids=lambda value: str(value)[:40])
def test_an_error_is_told_by_its_text_where_its_class_says_nothing(error: Exception, kind: type[BaseException]) -> None:
    assert type(ours(error) if not isinstance(error, TimeoutError) else VectorStoreUnavailable()) is kind


def test_a_panic_of_the_engine_is_an_error_and_a_cancellation_is_none() -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    with pytest.raises(VectorStoreRefused), translated():
        raise panic("index out of bounds")
    with pytest.raises(asyncio.CancelledError), translated():
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", VectorStoreMisconfigured),
        (403, "InvalidAccessKeyId", VectorStoreMisconfigured),
        (401, "Unauthorized", VectorStoreMisconfigured),
        (500, "InternalError", VectorStoreUnavailable),
        (503, "SlowDown", VectorStoreUnavailable),
    ],
)
async def test_object_storage_that_refuses_or_is_busy_is_said_to(
    loopback_s3: LoopbackS3, status: int, code: str, kind: type[AppError]
) -> None:
    store = LanceDbStore(loopback_s3.settings())
    loopback_s3.answers.append((status, code))
    try:
        availability = await store.is_available()
        error = await error_of(store)
    finally:
        loopback_s3.answers.clear()

    assert type(error) is kind
    assert not availability.ok
    # LanceDB asks six times in two seconds whatever the answer is: until then even a refusal is only silence.
    assert availability.temporary or not issubclass(kind, Unavailable)


async def test_a_bucket_that_does_not_exist_is_misconfigured(loopback_s3: LoopbackS3) -> None:
    error = await error_of(LanceDbStore(loopback_s3.settings(bucket="no-such-bucket")))

    assert isinstance(error, VectorStoreMisconfigured)


async def test_an_address_where_nobody_answers_is_unavailable_and_not_repeated() -> None:
    error = await error_of(LanceDbStore(NOWHERE))

    assert isinstance(error, VectorStoreUnavailable)
    for private in ("127.0.0.1", "an-id", "a-secret", "bucket"):
        assert private not in error.message


async def test_a_place_that_is_a_file_is_misconfigured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = LanceDbStore(LanceDbSettings(path=tmp_path / "file"))

    availability = await store.is_available()

    assert (availability.ok, availability.temporary) == (False, False)
    assert isinstance(await error_of(store), VectorStoreMisconfigured)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LanceDbStore(LanceDbSettings(path=tmp_path))
    await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
    await store.close()

    assert "closed" in (await error_of(store)).message


async def test_a_conflict_is_tried_again_a_few_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "FIRST_WAIT_S", 0.001)
    store, place = LanceDbStore(LanceDbSettings(path=tmp_path)), Place(uuid4(), a_space())
    calls: list[int] = []

    async def conflict(_: object) -> int:
        calls.append(1)
        if len(calls) == 3:
            return 7
        with translated():
            raise RuntimeError("lance error: Retryable commit conflict for version 12")

    assert await store._database.fill(place, conflict, timeout_s=5) == 7
    calls.extend([1] * 10)
    before = len(calls)
    with pytest.raises(VectorStoreUnavailable):
        await store._database.fill(place, conflict, timeout_s=60)
    assert len(calls) - before == database.ATTEMPTS
    await store.close()


async def test_a_question_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path, search_timeout_s=0.000_001)), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))

    with pytest.raises(VectorStoreUnavailable, match="too long"):
        await store.query_chunks(work, a_space(), vector=direction(0), top_k=1)

    await store.close()


async def test_numbers_and_widths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    store = LanceDbStore(LanceDbSettings(path=tmp_path))

    for build, first in ((2**63, 0), (1, 2**63)):
        with pytest.raises(VectorStoreRefused):
            await store.write_chunks(uuid4(), uuid4(), a_space(), build, chunks_of([direction(0)], first=first))
    wide = Space(1, "model", 16_001)
    with pytest.raises(VectorStoreRefused, match="16000"):
        await store.write_chunks(uuid4(), uuid4(), wide, 1, chunks_of([direction(0, dims=16_001)]))

    await store.close()


async def test_the_widest_vectors_and_the_largest_batch_are_taken(tmp_path: Path) -> None:
    store, work, document = LanceDbStore(LanceDbSettings(path=tmp_path)), uuid4(), uuid4()
    wide = Space(1, "model", 16_000)
    await store.write_chunks(work, document, wide, 1, chunks_of([direction(at, dims=16_000) for at in range(3)]))
    (hit,) = await store.query_chunks(work, wide, vector=direction(2, dims=16_000), top_k=1)
    assert hit.chunk.chunk_index == 2

    most = store.manifest.store.max_batch
    chunks = chunks_of([direction(at) for at in range(most)]) * 2
    result = await store.write_chunks(work, document, a_space(), 1, chunks)

    assert (result.written, result.skipped) == (most, most)
    await store.close()


def test_the_place_and_its_secrets() -> None:
    def place(**values: object) -> str:
        settings = LanceDbSettings.model_validate(values)
        return fingerprint(LanceDbStore.manifest, settings, plugin=LanceDbStore)

    secret = {"aws_access_key_id": "an-id", "aws_secret_access_key": "hunter2"}
    bucket = place(uri="s3://bucket/prefix", storage_options=secret)
    assert bucket == place(uri="s3://bucket/prefix/", storage_options={"aws_access_key_id": "another"})
    assert bucket != place(uri="s3://bucket/other")
    assert bucket != place(uri="s3://bucket/prefix", endpoint="https://minio.example")
    assert place() == place(probes=5)
    assert place() != place(path="/somewhere")

    settings = LanceDbSettings.model_validate({"uri": "s3://bucket/prefix", "storage_options": secret})
    assert "hunter2" not in repr(settings) + settings.model_dump_json()
    sealer = Sealer([Sealer.generate_key()])
    assert sealer.open(sealer.seal(settings), LanceDbSettings) == settings
    assert settings.options()["aws_secret_access_key"] == "hunter2"


@pytest.mark.parametrize(
    "values",
    [
        {"path": "relative/path"},
        {"path": "/a", "uri": "s3://bucket/x"},
        {"uri": "/a/path"},
        {"uri": "file:///etc"},
        {"uri": "db://cloud"},
        {"uri": "s3://"},
        {"uri": "s3://id:hunter2@bucket/x"},
        {"endpoint": "http://x", "path": "/a"},
        {"uri": "s3://bucket/x", "endpoint": "ftp://hunter2"},
        {"uri": "s3://bucket/x", "storage_options": {"endpoint": "http://hunter2"}},
        {"uri": "s3://bucket/x", "storage_options": "hunter2"},
        {"storage_options": {"aws_secret_access_key": "hunter2"}},
        {"unknown": 1},
    ],
)
def test_settings_that_name_no_place_are_refused_without_repeating_them(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as failure:
        LanceDbSettings.model_validate(values)

    assert "hunter2" not in str(failure.value)


def test_options_may_come_from_the_environment_as_json() -> None:
    settings = LanceDbSettings.model_validate({"uri": "s3://b/x", "storage_options": '{"aws_session_token": "t"}'})

    assert settings.options()["aws_session_token"] == "t"


def test_no_place_at_all_is_said_when_the_store_is_built(tmp_path: Path) -> None:
    with pytest.raises(VectorStoreMisconfigured):
        LanceDbStore(LanceDbSettings())

    LanceDbStore(LanceDbSettings(), own_path=tmp_path)


def test_a_missing_package_is_answered_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.vector_stores.lancedb.sdk.importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"stackroom\[lancedb\]") as failure:
        LanceDbStore(LanceDbSettings(path=tmp_path))

    assert isinstance(failure.value, Misconfigured)
    assert "lancedb" in [manifest.id for manifest in Registry.discover().manifests("vector-store")]


async def test_a_package_that_is_broken_is_answered_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise ImportError("libstdc++ is too old", name="_lancedb")

    monkeypatch.setattr("app.vector_stores.lancedb.sdk._imported", broken)
    store = LanceDbStore(LanceDbSettings(path=tmp_path))

    with pytest.raises(MissingExtra, match=r"stackroom\[lancedb\]"):
        await store.count(uuid4(), a_space())


async def test_a_directory_that_cannot_be_made_is_not_available() -> None:
    if os.access("/proc/self/nothing", os.W_OK):
        pytest.skip("this system lets directories be made there")
    availability = await LanceDbStore(LanceDbSettings(path=Path("/proc/self/nothing/here"))).is_available()

    assert not availability.ok
    assert "/proc" not in str(availability.reason)
