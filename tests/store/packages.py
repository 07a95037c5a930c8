"""Packages as an installer leaves them in a folder: the module, and beside it what it registers."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from proxy.packages import STORES

EXAMPLE = Path(__file__).parents[2] / "docs/examples/folder-store"


def install(site: Path, name: str, stores: Mapping[str, str]) -> None:
    """A package that registers stores: what opens each, by its scheme."""
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{scheme} = {place}" for scheme, place in stores.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{STORES}]", *lines, ""]))


def install_example(site: Path) -> None:
    """As its own pyproject.toml says."""
    said = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    install(site, said["project"]["name"].replace("-", "_"), said["project"]["entry-points"][STORES])
    for module in said["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        shutil.copy(EXAMPLE / module, site)
