"""A store in the process's own memory: bounded, and gone with the process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.ports import Space
from proxy.store.slots import Slot, footprint


class _Entry(NamedTuple):
    value: bytes
    expires: float


class _Shelf:
    """Entries in the order in which they were last asked for."""

    def __init__(self) -> None:
        self.bytes = 0
        self._entries: OrderedDict[Slot, _Entry] = OrderedDict()

    def find(self, slot: Slot, now: float) -> _Entry | None:
        entry = self._entries.get(slot)
        if entry is None or entry.expires <= now:
            self.drop(slot)
            return None
        self._entries.move_to_end(slot)
        return entry

    def keep(self, slot: Slot, entry: _Entry) -> None:
        self.drop(slot)
        self._entries[slot] = entry
        self.bytes += footprint(slot, entry.value)

    def drop(self, slot: Slot) -> None:
        if (entry := self._entries.pop(slot, None)) is not None:
            self.bytes -= footprint(slot, entry.value)

    def drop_oldest(self) -> None:
        self.drop(next(iter(self._entries)))


class MemoryStore:
    """When it is full, what was not asked for the longest goes first. What is kept for good stays.

    Messages are large, many, and seldom asked for again. They have a shelf of their own, which gives way
    while it takes more than half of the room: a day's messages must not push out a fold.
    """

    def __init__(self, most_bytes: int = 64 * 1024**2, clock: Callable[[], float] = time.time) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._messages = _Shelf()
        self._others = _Shelf()
        self._for_good: dict[Slot, bytes] = {}

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        now = self._clock()
        found = ((key, self._find(Slot(tenant, space, key), now)) for key in keys)
        return {key: entry.value for key, entry in found if entry is not None}

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        expires = self._clock() + ttl
        for key, value in values.items():
            slot = Slot(tenant, space, key)
            if slot not in self._for_good:
                self._keep(slot, _Entry(value, expires))

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        slot, now = Slot(tenant, space, key), self._clock()
        present = self._find(slot, now)
        winner = value if present is None else present.value
        if ttl is None:
            self._shelf(slot).drop(slot)
            self._for_good[slot] = winner
        elif present is None or present.expires < now + ttl:
            self._keep(slot, _Entry(winner, now + ttl))
        return winner

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        for key in keys:
            slot = Slot(tenant, space, key)
            self._for_good.pop(slot, None)
            self._shelf(slot).drop(slot)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        slot, now = Slot(tenant, Space.CLAIMS, key), self._clock()
        claimed = self._find(slot, now)
        if claimed is not None and claimed.value != holder:
            return False
        self._keep(slot, _Entry(holder, now + ttl))
        return True

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        slot = Slot(tenant, Space.CLAIMS, key)
        claimed = self._find(slot, self._clock())
        if claimed is not None and claimed.value == holder:
            self._shelf(slot).drop(slot)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _shelf(self, slot: Slot) -> _Shelf:
        return self._messages if slot.space is Space.MESSAGES else self._others

    def _find(self, slot: Slot, now: float) -> _Entry | None:
        if (value := self._for_good.get(slot)) is not None:
            return _Entry(value, float("inf"))
        return self._shelf(slot).find(slot, now)

    def _keep(self, slot: Slot, entry: _Entry) -> None:
        shelf = self._shelf(slot)
        shelf.drop(slot)
        if footprint(slot, entry.value) > self._most_bytes:
            return  # it would push out everything else and then itself
        shelf.keep(slot, entry)
        self._make_room()

    def _make_room(self) -> None:
        while self._messages.bytes + self._others.bytes > self._most_bytes:
            crowded = self._messages.bytes > self._most_bytes / 2
            (self._messages if crowded else self._others).drop_oldest()
