"""Writing behind the answer: whoever has something to keep does not wait until it is kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from proxy.callers import Callers
from proxy.ports import Space, Store, StoreUnavailable
from proxy.store.slots import Slot, footprint
from proxy.tasks import Tasks

log = structlog.get_logger("tailfold")

# How long what was learned from requests is kept, in seconds.
KEPT = 30 * 24 * 3600.0

# Another process waits for its turn to write for a fifth of a second; one put must be over long before.
_BYTES_AT_ONCE = 1024**2
_PUTS_AT_ONCE = 16
_TOO_MUCH = "more was to be written than the store can take"


class _Late(NamedTuple):
    value: bytes
    ttl: float


class _Put(NamedTuple):
    tenant: bytes
    space: Space
    values: Mapping[bytes, bytes]
    ttl: float


class LateWriter:
    """Writing begins at once; what arrives meanwhile is written together afterwards, so that the batches grow
    with the load. What the store refuses is dropped: all of it can be learned again. Of callers whom the
    upstream has not accepted nothing is written before it has.
    """

    def __init__(
        self, store: Store, tasks: Tasks, callers: Callers | None = None, *, most_bytes: int = 16 * 1024**2
    ) -> None:
        """Without `callers` everybody is known."""
        self._store = store
        self._tasks = tasks
        self._callers = callers
        self._most_bytes = most_bytes
        self._pending: dict[Slot, _Late] = {}
        self._pending_bytes = 0
        self._batch: dict[Slot, _Late] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._complained = False
        self.dropped = 0

    def writes_for(self, tenant: bytes) -> bool:
        """Is it known that the upstream accepts this caller?"""
        return self._callers is None or self._callers.know(tenant)

    def later(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        if self._callers is not None and not self._callers.know(tenant):
            size = sum(footprint(Slot(tenant, space, key), value) for key, value in values.items())
            self._callers.when_accepted(tenant, partial(self.later, tenant, space, values, ttl=ttl), size)
            return
        for key, value in values.items():
            self._add(Slot(tenant, space, key), _Late(value, ttl))
        self._keep_within_bounds()
        self._begin()

    def settle(
        self,
        tenant: bytes,
        space: Space,
        key: bytes,
        value: bytes,
        *,
        ttl: float,
        then: Callable[[bytes], None],
    ) -> None:
        """Keep a value if there is none; `then` hears which one is kept."""
        if self._callers is not None and not self._callers.know(tenant):
            settle = partial(self.settle, tenant, space, key, value, ttl=ttl, then=then)
            self._callers.when_accepted(tenant, settle, footprint(Slot(tenant, space, key), value))
            return
        work = self._settle(Slot(tenant, space, key), _Late(value, ttl), then)
        self._tasks.start(work, name="settle in the store")

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """What is stored, and what is still on its way there."""
        found: dict[bytes, bytes] = {}
        for key in keys:
            slot = Slot(tenant, space, key)
            late = self._pending.get(slot) or self._batch.get(slot)
            if late is not None:
                found[key] = late.value
        others = [key for key in keys if key not in found]
        return found | await self._store.get(tenant, space, others) if others else found

    async def drain(self, timeout: float) -> None:
        """Write everything that is pending, as far as there is time."""
        self._begin()
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=timeout)
        if left := len(self._pending) + len(self._batch):
            log.warning("not everything was written to the store in time", values=left)

    async def _settle(self, slot: Slot, late: _Late, then: Callable[[bytes], None]) -> None:
        try:
            then(await self._store.put_new(*slot, late.value, ttl=late.ttl))
        except StoreUnavailable as problem:
            self._lost(1, str(problem))

    def _begin(self) -> None:
        if self._pending and self._flushing is None:
            self._flushing = self._tasks.start(self._flush(), name="write to the store")

    def _add(self, slot: Slot, late: _Late) -> None:
        self._remove(slot)  # so that it comes last again
        if (size := footprint(slot, late.value)) > self._most_bytes:
            self._lost(1, _TOO_MUCH)  # it would push out everything else and then itself
            return
        self._pending[slot] = late
        self._pending_bytes += size

    def _remove(self, slot: Slot) -> None:
        if (late := self._pending.pop(slot, None)) is not None:
            self._pending_bytes -= footprint(slot, late.value)

    def _keep_within_bounds(self) -> None:
        before = len(self._pending)
        while self._pending_bytes > self._most_bytes:
            self._remove(next(iter(self._pending)))
        if gone := before - len(self._pending):
            self._lost(gone, _TOO_MUCH)

    async def _flush(self) -> None:
        dropped_before = self.dropped
        try:
            while self._pending:
                self._batch, self._pending, self._pending_bytes = self._pending, {}, 0
                await self._write(self._batch)
                self._batch = {}
            self._complained = self._complained and self.dropped > dropped_before
        finally:
            self._flushing = None

    async def _write(self, batch: dict[Slot, _Late]) -> None:
        for puts in _rounds(_puts(batch)):
            await asyncio.gather(*map(self._put, puts))

    async def _put(self, put: _Put) -> None:
        try:
            await self._store.put(put.tenant, put.space, put.values, ttl=put.ttl)
        except StoreUnavailable as problem:
            self._lost(len(put.values), str(problem))

    def _lost(self, count: int, problem: str) -> None:
        """Said once, until everything could be written again."""
        self.dropped += count
        if not self._complained:
            self._complained = True
            log.warning("values are not kept", problem=problem)


def _puts(batch: Mapping[Slot, _Late]) -> Iterator[_Put]:
    groups: defaultdict[tuple[bytes, Space, float], dict[bytes, bytes]] = defaultdict(dict)
    for slot, late in batch.items():
        groups[slot.tenant, slot.space, late.ttl][slot.key] = late.value
    for (tenant, space, ttl), values in groups.items():
        for portion in _portions(values):
            yield _Put(tenant, space, portion, ttl)


def _rounds(puts: Iterable[_Put]) -> Iterator[list[_Put]]:
    """What is put at once takes one round trip to a store that is somewhere else, and is no more than that
    store can take within the time of one put.
    """
    together: list[_Put] = []
    size = 0
    for put in puts:
        more = sum(map(len, put.values.values()))
        if together and (len(together) == _PUTS_AT_ONCE or size + more > _BYTES_AT_ONCE):
            yield together
            together, size = [], 0
        together.append(put)
        size += more
    if together:
        yield together


def _portions(values: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    portion: dict[bytes, bytes] = {}
    size = 0
    for key, value in values.items():
        if portion and size + len(value) > _BYTES_AT_ONCE:
            yield portion
            portion, size = {}, 0
        portion[key] = value
        size += len(value)
    yield portion
