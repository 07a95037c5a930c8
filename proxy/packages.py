"""What other packages bring along: found by entry point, loaded only when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

STORES = "tailfold.stores"


def brought_along(group: str, name: str) -> list[EntryPoint]:
    """One for each package that registers the name."""
    # Looks into every installed package, which costs time that only those pay who ask for something unknown.
    from importlib.metadata import entry_points

    return [*entry_points(group=group, name=name)]
