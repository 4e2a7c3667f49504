"""The embedded server, with the real binaries: starting, adopting, recovering, refusing."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from app.db.data_directory import DataDirectoryInUse, DataDirectoryLock
from app.db.embedded import EmbeddedServer, ServerNotReady
from app.db.postgres import ServerMisconfigured

START_AND_STAY = """
import sys, time
from pathlib import Path
from app.db.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
print("ready", flush=True)
time.sleep(600)
"""
HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from app.db.data_directory import DataDirectoryLock
with DataDirectoryLock(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""


def run_until_ready(program: str, directory: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def pid_of(server: EmbeddedServer) -> int:
    return int((server.directory / "postmaster.pid").read_text().splitlines()[0])


def write_something(server: EmbeddedServer) -> None:
    with psycopg.connect(server.dsn) as connection:
        connection.execute("create table if not exists kept as select 42 as n")


def what_was_written(server: EmbeddedServer) -> object:
    with psycopg.connect(server.dsn) as connection:
        return connection.execute("select n from kept").fetchone()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path)
    yield server
    server.stop()


def test_a_fresh_directory_becomes_a_database_with_our_settings(server: EmbeddedServer) -> None:
    dsn = server.start()

    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select current_database(), current_setting('jit'), current_setting('max_wal_size'),"
            " current_setting('idle_in_transaction_session_timeout'), current_setting('listen_addresses')"
        ).fetchone()
    assert found == ("stackroom", "off", "4GB", "1min", "")


def test_the_wheel_brings_the_vector_extension(server: EmbeddedServer) -> None:
    with psycopg.connect(server.start()) as connection:
        connection.execute("create extension vector")


def test_a_second_start_keeps_the_data_and_writes_the_settings_once(server: EmbeddedServer) -> None:
    server.start()
    write_something(server)
    server.stop()

    server.start()

    assert what_was_written(server) == (42,)
    assert (server.directory / "postgresql.conf").read_text().count("stackroom.conf") == 1


def test_nobody_but_its_owner_can_reach_the_socket(server: EmbeddedServer) -> None:
    server.start()

    assert server.directory.stat().st_mode & 0o077 == 0


def test_stopping_leaves_no_process_and_may_be_repeated(server: EmbeddedServer) -> None:
    server.start()
    pid = pid_of(server)

    server.stop()
    server.stop()

    assert not psutil.pid_exists(pid)
    assert not server.is_running()


def test_a_server_whose_parent_was_killed_is_adopted_and_stopped_at_the_end(server: EmbeddedServer) -> None:
    parent = run_until_ready(START_AND_STAY, server.directory.parent)
    survivor = pid_of(server)
    kill(parent)

    dsn = server.start()

    assert pid_of(server) == survivor
    psycopg.connect(dsn).close()
    server.stop()
    assert not server.is_running()


def test_an_adopted_server_that_is_just_going_down_is_followed_by_a_new_one(server: EmbeddedServer) -> None:
    kill(run_until_ready(START_AND_STAY, server.directory.parent))
    write_something(server)
    os.kill(pid_of(server), signal.SIGINT)

    server.start()

    assert what_was_written(server) == (42,)


def test_a_killed_server_recovers_what_was_committed(server: EmbeddedServer) -> None:
    server.start()
    write_something(server)
    os.kill(pid_of(server), signal.SIGKILL)

    server.start()

    assert what_was_written(server) == (42,)


def test_a_pid_file_whose_number_belongs_to_a_stranger_now_does_not_stop_the_start(server: EmbeddedServer) -> None:
    server.start()
    write_something(server)
    lines = (server.directory / "postmaster.pid").read_text().splitlines()
    os.kill(int(lines[0]), signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"])
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (server.directory / name).write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")

    try:
        server.start()
    finally:
        stranger.kill()
        stranger.wait()

    assert what_was_written(server) == (42,)


def test_a_directory_of_another_major_version_is_refused_with_the_way_out(server: EmbeddedServer) -> None:
    server.start()
    server.stop()
    (server.directory / "PG_VERSION").write_text("15\n")

    with pytest.raises(ServerMisconfigured, match=r"made by PostgreSQL 15.*pg_dump"):
        server.start()


def test_a_first_start_that_was_killed_half_way_leaves_nothing_to_trip_over(server: EmbeddedServer) -> None:
    half_made = server.directory.with_name("postgres.new")
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")

    psycopg.connect(server.start()).close()


def test_a_directory_that_holds_something_else_is_left_alone(server: EmbeddedServer) -> None:
    server.directory.mkdir()
    (server.directory / "thesis.txt").write_text("precious")

    with pytest.raises(ServerMisconfigured, match="is no database"):
        server.start()

    assert (server.directory / "thesis.txt").read_text() == "precious"


def test_a_server_that_refuses_to_run_says_why(server: EmbeddedServer) -> None:
    server.start()
    server.stop()
    with (server.directory / "postgresql.conf").open("a") as conf:
        conf.write("shared_buffers = 'plenty'\n")

    with pytest.raises(ServerNotReady, match="shared_buffers"):
        server.start()


def test_a_short_path_with_a_comma_will_do() -> None:
    """A comma separates hosts to libpq; a long path would hide it, since its socket lies elsewhere."""
    with tempfile.TemporaryDirectory(prefix="a, b") as place:
        server = EmbeddedServer(Path(place))
        try:
            psycopg.connect(server.start(30)).close()
        finally:
            server.stop()


@pytest.mark.parametrize("name", ["deep/" * 25 + "end", "with space, comma and 'quote'", "ümläut", "per%cent"])
def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    server = EmbeddedServer(tmp_path / name)
    try:
        psycopg.connect(server.start()).close()
    finally:
        server.stop()


def test_a_second_holder_of_a_data_directory_is_told_who_has_it(tmp_path: Path) -> None:
    holder = run_until_ready(HOLD_THE_LOCK, tmp_path)

    with (
        pytest.raises(DataDirectoryInUse, match=rf"in use by process {holder.pid}.*--data-dir"),
        DataDirectoryLock(tmp_path),
    ):
        pass

    kill(holder)


def test_a_killed_holder_lets_go_of_the_data_directory(tmp_path: Path) -> None:
    kill(run_until_ready(HOLD_THE_LOCK, tmp_path))

    with DataDirectoryLock(tmp_path):
        pass
