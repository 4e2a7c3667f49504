"""What stands in the queue: ids, never a name, a text or a secret."""

import ast
from collections.abc import Iterator
from pathlib import Path

import app

ROOT = Path(app.__file__).parent


def enqueued_arguments() -> Iterator[tuple[str, ast.expr]]:
    """(place, argument) of every call of `enqueue` outside the queue itself."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent.name == "jobs":
            continue
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.AsyncFunctionDef):
                yield from ((f"{path.name}:{e.lineno}", e) for e in _arguments(function))


def _arguments(function: ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    assigned = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "enqueue":
            for keyword in call.keywords:
                if keyword.arg == "args":
                    value = keyword.value
                    yield assigned.get(value.id, value) if isinstance(value, ast.Name) else value


GENERATIONS = ("previous", "new")  # of a sweep: ids too


def test_every_job_is_given_ids_only() -> None:
    found = dict(enqueued_arguments())

    assert len(found) >= 4
    for place, value in found.items():
        assert isinstance(value, ast.Dict), place
        for key, argument in zip(value.keys, value.values, strict=True):
            assert key is not None, place
            name = ast.unparse(key).strip("f'\"")
            assert name.endswith("_id") or name in GENERATIONS, (place, ast.unparse(key))
            assert ast.unparse(argument).startswith("str("), (place, ast.unparse(argument))
