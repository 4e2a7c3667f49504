"""Discovery of plugins."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from app.plugins import registry as registry_module
from app.plugins.errors import BrokenPlugin, DuplicatePlugin, InvalidPluginSettings, UnknownPlugin
from app.plugins.registry import Registry
from tests.unit.plugins.example_plugins import ServerSettings, ServerStore

EXAMPLES = "tests.unit.plugins.example_plugins"
SERVER = ("server", f"{EXAMPLES}:ServerStore")
WORDY = ("wordy", f"{EXAMPLES}:WordyProvider")
BROKEN = ("broken", "tests.unit.plugins.broken_plugin:Store")
VENDORS = (
    "openai",
    "httpx2",
    "onnxruntime",
    "sentencepiece",
    "qdrant_client",
    "pymilvus",
    "weaviate",
    "chromadb",
    "lancedb",
    "pyarrow",
)


def test_plugins_are_listed_in_the_order_of_their_entries() -> None:
    registry = Registry([WORDY, SERVER])

    assert [manifest.id for manifest in registry.manifests()] == ["wordy", "server"]
    assert [manifest.id for manifest in registry.manifests("vector-store")] == ["server"]


def test_the_same_entry_twice_is_one_plugin() -> None:
    assert len(Registry([SERVER, SERVER]).plugins()) == 1


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("tests.unit.plugins.broken_plugin:Store", "RuntimeError: this module was built for another version"),
        ("no_such_module_anywhere:Store", "ModuleNotFoundError"),
        (f"{EXAMPLES}:NoSuchClass", "AttributeError"),
        (f"{EXAMPLES}:WithoutManifest", "no class with a `manifest`"),
        (f"{EXAMPLES}:not_a_class", "no class with a `manifest`"),
        (EXAMPLES, "AttributeError"),
        (f"{EXAMPLES}:AskingNonsense", "nowhere"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_listed_with_the_reason_and_disturbs_no_other(
    target: str, reason: str
) -> None:
    registry = Registry([("bad", target), SERVER])

    [broken] = registry.broken
    assert (broken.name, broken.target) == ("bad", target)
    assert reason in broken.reason
    assert registry.get("server").cls is ServerStore


def test_two_plugins_with_one_id_are_refused_and_both_are_named() -> None:
    with pytest.raises(DuplicatePlugin, match=r"ServerStore.*SameIdStore"):
        Registry([SERVER, ("other", f"{EXAMPLES}:SameIdStore")])


def test_asking_for_a_broken_plugin_gives_the_reason() -> None:
    with pytest.raises(BrokenPlugin, match="another version"):
        Registry([BROKEN]).get("broken")


def test_asking_for_an_unknown_plugin_gives_the_known_ones() -> None:
    registry = Registry([SERVER])

    assert registry.find("qdrant") is None
    with pytest.raises(UnknownPlugin, match="server"):
        registry.get("qdrant")


def test_a_plugin_is_built_from_its_own_settings() -> None:
    registry = Registry([SERVER])

    store = registry.build("server", registry.parse_settings("server", {"url": "http://db:6333"}))

    assert isinstance(store, ServerStore)
    assert store.settings == ServerSettings(url="http://db:6333")


def test_settings_that_do_not_fit_name_the_field_and_never_the_value() -> None:
    with pytest.raises(InvalidPluginSettings) as caught:
        Registry([SERVER]).parse_settings("server", {"timeout_s": "secret-value", "colour": "secret-value"})

    assert {fault.loc for fault in caught.value.faults} == {("timeout_s",), ("colour",)}
    assert "secret-value" not in str(caught.value)
    assert caught.value.__context__ is None


def test_discovery_reads_the_entry_points_our_own_first(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("a", SERVER[1], "stackroom.plugins"), EntryPoint("z", "app.nothing:X", "stackroom.plugins")]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: points if group == "stackroom.plugins" else [])

    registry = Registry.discover()

    assert [manifest.id for manifest in registry.manifests()] == ["server"]
    assert [broken.name for broken in registry.broken] == ["z"]


def test_listing_imports_no_vendors_sdk() -> None:
    root = Path(__file__).parents[3]
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["stackroom.plugins"]
    program = (
        "import json, sys; from app.plugins.registry import Registry;"
        "r = Registry(json.loads(sys.argv[1]).items()); [m.model_dump(mode='python') for m in r.manifests()];"
        "print(json.dumps([[m.id for m in r.manifests()], sorted(set(sys.argv[2:]) & set(sys.modules))]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(declared), *VENDORS],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )

    listed, imported = json.loads(done.stdout)
    assert "openai" in listed
    assert imported == []
