"""What is installed from the wheel works outside the checkout: the shipped files are in it, and are found."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent

# Neither `site` nor the environment is heeded (-I -S), so the checkout's own installation cannot answer.
LOOK_UP = """
import json, socket, sys

sys.path[:0] = sys.argv[1:]

def no_name_is_resolved(*args, **kwargs):
    raise socket.gaierror(socket.EAI_AGAIN, "no network")

socket.getaddrinfo = no_name_is_resolved

import proxy
from proxy.config_files import config_dir
from proxy.windows.model_map import ModelMap

known = ModelMap({})
known.load()
found = {name: known.look_up(name) for name in ("claude-3-opus", "xai/grok-4.3", "nobody")}
print(json.dumps({
    "package": proxy.__file__,
    "config": str(config_dir()),
    "models": {
        name: {"window": model.facts.window, "origin": model.origins.get("window")}
        for name, model in found.items()
    },
    "imported": [name for name in ("litellm", "tiktoken") if name in sys.modules],
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network and unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_carries_the_shipped_configuration(installed: Path) -> None:
    shipped = sorted(file.name for file in (ROOT / "config").iterdir())
    assert sorted(file.name for file in (installed / "proxy" / "config").iterdir()) == shipped
    assert "models.yaml" in shipped


def test_the_installed_map_is_looked_up_without_checkout_network_or_litellm(
    installed: Path, tmp_path: Path
) -> None:
    said = run(LOOK_UP, installed, cwd=tmp_path)
    assert Path(said["package"]).is_relative_to(installed)
    assert Path(said["config"]) == installed / "proxy" / "config"
    assert said["models"] == {
        "claude-3-opus": {"window": 200_000, "origin": "map"},
        "xai/grok-4.3": {"window": 1_000_000, "origin": "litellm"},
        "nobody": {"window": None, "origin": None},
    }
    assert said["imported"] == []


def run(code: str, installed: Path, *, cwd: Path) -> dict[str, Any]:
    dependencies = sysconfig.get_path("purelib")
    command = [sys.executable, "-I", "-S", "-c", code, str(installed), dependencies]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said
