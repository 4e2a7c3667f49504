"""`.env.example` and `Settings` say the same."""

import re
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from app.settings import Settings

EXAMPLE = Path(__file__).parents[2] / ".env.example"
OPERATING = EXAMPLE.parent / "docs" / "operating.md"
LINE = re.compile(r"#([A-Z][A-Z0-9_]*)=(.*)")


def listed() -> dict[str, str]:
    return {match[1]: match[2] for line in EXAMPLE.read_text().splitlines() if (match := LINE.fullmatch(line))}


def variable(name: str, field: FieldInfo) -> str:
    return str(field.validation_alias or f"KB_{name.upper()}")


def written(default: object) -> str:
    if default is None or default == ():
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_names_and_defaults_are_those_of_the_settings() -> None:
    defaults = {variable(name, field): written(field.default) for name, field in Settings.model_fields.items()}

    assert listed() == defaults


def test_each_name_stands_once_and_switched_off() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("# ") and line != "#"]

    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert len(lines) == len(listed())


def test_switched_on_the_example_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in listed().items():
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)

    as_written = Settings()

    assert as_written == Settings.model_construct()


def test_the_operators_page_names_every_setting_and_no_other() -> None:
    named = set(re.findall(r"`((?:KB|OPENAI)_[A-Z0-9_]+)\b", OPERATING.read_text()))
    ours = {name for name in named if not name.startswith("KB_PLUGIN_")}  # those are the plugins' own

    assert ours == set(listed())
