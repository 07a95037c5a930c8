"""Imports point down, and start-up stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KNOW_NOBODY = ["errors", "headers", "usage", "config_files", "decoding", "tasks", "messages"]


def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "proxy").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports when it is imported itself."""
    result = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            result |= names if names & known.keys() else {node.module}
    return {name for name in result if name in known and name != "proxy"}


def test_there_are_no_import_cycles() -> None:
    known = modules()
    TopologicalSorter({name: imports(path, known) for name, path in known.items()}).prepare()


@pytest.mark.parametrize("name", KNOW_NOBODY)
def test_the_ground_floor_knows_nobody(name: str) -> None:
    known = modules()
    assert imports(known[f"proxy.{name}"], known) == set()


def test_only_the_app_names_concrete_classes_of_every_room() -> None:
    known = modules()
    users = [name for name, path in known.items() if "proxy.app" in imports(path, known)]
    assert users == []  # the command line imports it when it serves, not before


def test_nothing_but_the_simulator_itself_needs_the_simulator() -> None:
    known = modules()
    for name, path in known.items():
        if not name.startswith("proxy.simulator"):
            assert not any(used.startswith("proxy.simulator") for used in imports(path, known)), name


def test_serving_imports_nothing_heavy_that_only_some_need() -> None:
    heavy = ("litellm", "tiktoken", "openai", "redis", "cryptography")
    code = f"import sys, proxy.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
