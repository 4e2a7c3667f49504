"""Where the client commands look for address and key, and what they say when they find none."""

import socket
from pathlib import Path

import pytest
from conftest import Run
from service_double import KEY, ServiceDouble

from app.cli.first_key import ClientProblem, find_access


def test_the_environment_comes_first(tmp_path: Path) -> None:
    (tmp_path / "first-api-key").write_text("from-file")

    access = find_access({"KB_URL": "https://kb.example/", "KB_API_KEY": KEY, "KB_DATA_DIR": str(tmp_path)})

    assert (access.url, access.key, access.source) == ("https://kb.example", KEY, "KB_API_KEY")


def test_the_first_key_is_read_from_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "first-api-key").write_text(KEY + "\n")

    access = find_access({"KB_DATA_DIR": str(tmp_path)})

    assert (access.url, access.key) == ("http://127.0.0.1:8000", KEY)


def test_without_a_key_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientProblem, match="set KB_API_KEY, or start the service here first"):
        find_access({"KB_DATA_DIR": str(tmp_path)})


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "schlüssel".encode()])
def test_a_file_that_holds_no_key_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "first-api-key").write_bytes(content)

    with pytest.raises(ClientProblem, match="first-api-key"):
        find_access({"KB_DATA_DIR": str(tmp_path)})


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "kb"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ClientProblem, match="KB_URL must look like"):
        find_access({"KB_URL": url, "KB_API_KEY": KEY})


def test_a_key_does_not_show_in_its_representation() -> None:
    assert KEY not in repr(find_access({"KB_API_KEY": KEY}))


def test_a_service_that_is_not_there_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("KB_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("KB_API_KEY", KEY)

    result = run("search", "x")

    assert result.exit_code == 2
    assert "No service answers at" in result.stderr
    assert "stackroom serve" in result.stderr


def test_a_refused_key_is_named_by_its_source(
    service: ServiceDouble, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KB_API_KEY", "wrong" * 8)

    result = run("search", "x")

    assert result.exit_code == 2
    assert "does not accept the key from KB_API_KEY" in result.stderr
    assert "wrong" * 8 not in result.stderr


def test_a_proxy_of_the_environment_does_not_stand_before_loopback(
    service: ServiceDouble, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    assert run("search", "x").exit_code == 0
