"""`stackroom generations …` and `stackroom check` as processes beside a running service."""

import json
import subprocess
import sys
import time
from uuid import uuid4

import psycopg
import pytest

from tests.service import BOOTSTRAP_KEY, REPOSITORY, Service, Tenant


@pytest.fixture(scope="module")
def indexed(service: Service) -> Tenant:
    made = service.tenant()
    made.ready(made.knowledge_base(), "words for an index")
    return made


def command(service: Service, *words: str, key: str | None = BOOTSTRAP_KEY) -> "subprocess.CompletedProcess[str]":
    environment = {**service.environment(), "KB_URL": service.url, "KB_API_KEY": key or "", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *words],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_an_index_is_built_followed_listed_and_gone_back_to(service: Service, indexed: Tenant) -> None:
    work = ("--work-id", indexed.work_id)

    built = command(service, "generations", "build", "--force", *work)
    assert built.returncode == 0, built.stderr
    listed = command(service, "generations", "list", *work)
    assert [line.split()[1::2][:2] for line in listed.stdout.splitlines() if "│ 1 " in line or "│ 2 " in line] == [
        ["2", "active"],
        ["1", "retired"],
    ], listed.stdout
    back = command(service, "generations", "rollback", "1", *work)
    assert back.returncode == 0, back.stderr
    again = command(service, "generations", "list", *work)
    assert "retired" in next(line for line in again.stdout.splitlines() if "│ 2 " in line)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build",), "up_to_date"),
        (("cancel", "1"), "wrong_state"),
        (("rollback", "77"), "There is no generation '77'"),
    ],
)
def test_what_can_not_be_done_is_said_in_a_sentence(
    service: Service, indexed: Tenant, words: tuple[str, ...], said: str
) -> None:
    done = command(service, "generations", *words, "--work-id", indexed.work_id)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_organizations_work_is_not_there(service: Service, indexed: Tenant) -> None:
    done = command(service, "generations", "list", "--work-id", str(uuid4()))

    assert done.returncode == 2
    assert "not_found" in done.stderr


def test_the_check_finds_what_nobody_names_and_mends_it(service: Service, indexed: Tenant) -> None:
    lost = uuid4()
    with psycopg.connect(service.database_url, autocommit=True) as owner:
        copied = owner.execute(
            "insert into pgvector_chunks select (jsonb_populate_record(c, jsonb_build_object('document_id', %s::text)))"
            ".* from pgvector_chunks c where c.work_id = %s limit 1",
            (str(lost), indexed.work_id),
        )
        assert copied.rowcount == 1

    found = command(service, "check", "--json")
    assert found.returncode == 1, found.stderr
    [index] = [one for one in json.loads(found.stdout)["indexes"] if one["leftovers"]]
    assert index["work_id"] == indexed.work_id
    assert [one["document_id"] for one in index["leftovers"]] == [str(lost)]

    mended = command(service, "check", "--repair")
    assert mended.returncode == 0, (mended.stdout, mended.stderr)
    deadline = time.monotonic() + 30
    while (clean := command(service, "check")).returncode:  # other tests may be writing at this very moment
        assert time.monotonic() < deadline, clean.stdout
    assert "hold what they should" in clean.stdout


def test_without_a_database_the_check_says_where_it_looked(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nowhere = tmp_path_factory.mktemp("nowhere")
    environment = {k: v for k, v in service.environment().items() if k != "KB_DATABASE_URL"}

    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "check", "--data-dir", str(nowhere)],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "there is no database in" in done.stderr
