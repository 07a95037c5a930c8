"""All that a store keeps, one by one: for counting it, for moving it to another, for clearing it out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from math import inf
from typing import NamedTuple, Protocol, runtime_checkable

from proxy.ports import Space
from proxy.store.slots import Slot


class Entry(NamedTuple):
    """`until` is a time, infinite for what does not expire and None for what is kept for good."""

    tenant: bytes
    space: Space
    key: bytes
    value: bytes
    until: float | None

    @property
    def slot(self) -> Slot:
        return Slot(self.tenant, self.space, self.key)

    def lasts(self, now: float) -> float | None:
        """For how many seconds from now, in the words of `put_new`."""
        return None if self.until is None else inf if self.until == inf else self.until - now


@runtime_checkable
class Listed(Protocol):
    """A store that can tell all it keeps."""

    def entries(self) -> AsyncIterator[Entry]:
        """What holds now, in no order; what is put meanwhile may be among it or not. Claims are not told:
        they hold for seconds.
        """
        ...

    async def clear(self, spaces: Collection[Space], *, only_expired: bool) -> int:
        """Remove all of these kinds, or what of them has expired and is still there: how many values."""
        ...
