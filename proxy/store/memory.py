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


class MemoryStore:
    """When it is full, what was not asked for the longest goes first. What is settled stays."""

    def __init__(self, most_bytes: int = 64 * 1024**2, clock: Callable[[], float] = time.time) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._bytes = 0
        self._entries: OrderedDict[Slot, _Entry] = OrderedDict()
        self._settled: dict[Slot, bytes] = {}

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        now = self._clock()
        found = ((key, self._find(Slot(tenant, space, key), now)) for key in keys)
        return {key: value for key, value in found if value is not None}

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        expires = self._clock() + ttl
        for key, value in values.items():
            slot = Slot(tenant, space, key)
            if slot not in self._settled:
                self._keep(slot, _Entry(value, expires))

    async def settle(self, tenant: bytes, space: Space, key: bytes, value: bytes) -> bytes:
        slot = Slot(tenant, space, key)
        present = self._find(slot, self._clock())
        self._drop(slot)
        return self._settled.setdefault(slot, value if present is None else present)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _find(self, slot: Slot, now: float) -> bytes | None:
        if (settled := self._settled.get(slot)) is not None:
            return settled
        if (entry := self._entries.get(slot)) is None:
            return None
        if entry.expires <= now:
            self._drop(slot)
            return None
        self._entries.move_to_end(slot)
        return entry.value

    def _keep(self, slot: Slot, entry: _Entry) -> None:
        self._drop(slot)
        size = footprint(slot, entry.value)
        if size > self._most_bytes:
            return  # it would push out everything else and then itself
        self._entries[slot] = entry
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, slot: Slot) -> None:
        if (entry := self._entries.pop(slot, None)) is not None:
            self._bytes -= footprint(slot, entry.value)
