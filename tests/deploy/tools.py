"""The tools that the files of deploy/ are for, and what they say of a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"

REQUIRED = "REQUIRE_DEPLOY_TOOLS"
# Debian's package for each of them. Others come with the development requirements.
PACKAGES = {"promtool": "prometheus", "systemd-analyze": "systemd", "nginx": "nginx-light"}


def tool(name: str) -> str:
    """The tool's path. Where it is absent, the test is skipped, or fails if all tools are asked for."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin")
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is not None:
        return found
    where = f"Debian's package {PACKAGES[name]}" if name in PACKAGES else "the development requirements"
    reason = f"{name} is not installed; it comes with {where}"
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason}, and {REQUIRED}=1 asks for it")
    pytest.skip(reason)


def run(name: str, *arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """What the tool says, whatever its exit code."""
    command = [tool(name), *map(str, arguments)]
    return subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False, **how
    )


def accepts(name: str, *arguments: object, **how: Any) -> str:
    """What the tool says of something that it finds nothing wrong with."""
    done = run(name, *arguments, **how)
    assert done.returncode == 0, done.stdout
    return done.stdout


def read_yaml(file: Path) -> Any:
    return yaml.safe_load(file.read_text())
