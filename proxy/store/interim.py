"""The memory that answers while the real store cannot, and what it holds on to afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from proxy.ports import Space, Store
from proxy.store.outage import Outage
from proxy.store.slots import Slot

# What a provider has cached must be sent again byte for byte: a store that is away for a moment is no reason
# to make all folds anew, so those that were used lately stay at hand.
_AT_HAND = frozenset({Space.FOLDS})
_AT_HAND_FOR = 3600.0
_MOST_OWN = 20_000  # winners of one space; the oldest are no longer held

OnOverruled = Callable[[Slot, bytes], None]  # with what the primary has in place of ours


def unheard(_slot: Slot, _theirs: bytes) -> None:
    pass


class Interim:
    """A winner that was found during an outage holds for this process until the primary is back and has been
    told. If that has another one by then, ours gives way: what changes then costs a place in the provider's
    cache once, and all processes send the same again. Of what is kept for good, on which everything hangs,
    `on_overruled` hears.
    """

    def __init__(self, memory: Store, on_overruled: OnOverruled = unheard) -> None:
        self._memory = memory
        self._on_overruled = on_overruled
        # Where the memory's answer goes before the primary's: with its time to live, for telling the primary.
        self._own: defaultdict[Space, dict[Slot, float | None]] = defaultdict(dict)

    # During an outage: a store like any other.

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._memory.get(tenant, space, keys)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        await self._memory.put(tenant, space, values, ttl=ttl)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        self._hold(Slot(tenant, space, key), ttl)
        return await self._memory.put_new(tenant, space, key, value, ttl=ttl)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        await self.forget(tenant, space, keys)
        raise Outage("unavailable", "nothing can be deleted while the store cannot be used")

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        return await self._memory.claim(tenant, key, holder, ttl=ttl)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        await self._memory.release(tenant, key, holder)

    async def close(self) -> None:
        await self._memory.close()

    # Beside the primary.

    async def agreed(
        self, tenant: bytes, space: Space, keys: Sequence[bytes], found: dict[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """What was found in the primary, with our own answers in place of its."""
        own = self._own_keys(tenant, space, keys)
        if space in _AT_HAND and (others := {key: found[key] for key in found.keys() - own}):
            await self._memory.put(tenant, space, others, ttl=_AT_HAND_FOR)
        return found | await self._memory.get(tenant, space, list(own)) if own else found

    async def decided(self, slot: Slot, winner: bytes, ttl: float | None) -> bytes:
        """The winner for this process. Two may have asked at once, one the primary and one the memory: the
        first answer holds.
        """
        tenant, space, key = slot
        if slot in self._own[space]:
            return (await self._memory.get(tenant, space, [key])).get(key, winner)
        if ttl is None:
            self._hold(slot, None)
            return await self._memory.put_new(tenant, space, key, winner, ttl=None)
        await self._memory.put(tenant, space, {key: winner}, ttl=ttl)
        return winner

    async def tell(self, primary: Store) -> None:
        """Our winners. Others may be found while this is going on, so that it looks again."""
        told: set[Slot] = set()
        while untold := {
            slot: ttl for own in self._own.values() for slot, ttl in own.items() if slot not in told
        }:
            for slot, ttl in untold.items():
                await self._tell(primary, slot, ttl)
            told |= untold.keys()

    async def forget(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        for slot in (Slot(tenant, space, key) for key in keys):
            self._own[space].pop(slot, None)
        await self._memory.delete(tenant, space, keys)

    async def _tell(self, primary: Store, slot: Slot, ttl: float | None) -> None:
        tenant, space, key = slot
        ours = (await self._memory.get(tenant, space, [key])).get(key)
        winner = None if ours is None else await primary.put_new(tenant, space, key, ours, ttl=ttl)
        if ttl is not None:
            self._own[space].pop(slot, None)
        if winner is not None and winner != ours:
            await self._give_way(slot, winner, ttl)

    async def _give_way(self, slot: Slot, theirs: bytes, ttl: float | None) -> None:
        tenant, space, key = slot
        await self._memory.delete(tenant, space, [key])
        await self._memory.put_new(tenant, space, key, theirs, ttl=ttl)
        if ttl is None:
            self._on_overruled(slot, theirs)

    def _own_keys(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> set[bytes]:
        # Counts are asked for by the thousand and never decided: that must cost nothing.
        own = self._own.get(space)
        return {key for key in keys if Slot(tenant, space, key) in own} if own else set()

    def _hold(self, slot: Slot, ttl: float | None) -> None:
        own = self._own[slot.space]
        own[slot] = ttl
        if len(own) > _MOST_OWN:
            del own[next(iter(own))]
