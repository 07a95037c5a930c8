"""All that a store keeps, one by one: for moving it to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol, runtime_checkable

from proxy.ports import Space


class Entry(NamedTuple):
    """`until` is a time, infinite for what does not expire and None for what is kept for good."""

    tenant: bytes
    space: Space
    key: bytes
    value: bytes
    until: float | None


@runtime_checkable
class Listed(Protocol):
    """A store that can tell all it keeps. Claims are not told: they hold for seconds."""

    def entries(self) -> AsyncIterator[Entry]: ...
