"""A store whose values nobody can read, change or exchange who has the store alone.

Only the values are sealed: their places are digests, which the store has to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from proxy.ports import Space, Store
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.slots import Slot

log = structlog.get_logger("tailfold")


class SealedStore:
    """Any store, with its values sealed. What cannot be opened is a miss.

    Claims stay as they are: the store itself compares who holds one, and they say nothing.
    """

    def __init__(self, inner: Store, keys: Keyring) -> None:
        self._inner = inner
        self._keys = keys
        self._complained: set[str] = set()

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if space is Space.CLAIMS:
            return await self._inner.get(tenant, space, keys)
        if space is Space.SERVER:
            return await self._servers(tenant, keys)
        found = await self._inner.get(tenant, space, keys)
        return self._opened(tenant, space, found)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        if space is not Space.CLAIMS:
            values = {key: self._keys.seal(Slot(tenant, space, key), value) for key, value in values.items()}
        await self._inner.put(tenant, space, values, ttl=ttl)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        if space is Space.CLAIMS:
            return await self._inner.put_new(tenant, space, key, value, ttl=ttl)
        if space is Space.SERVER and ttl is None:
            return await self._for_good(tenant, key, value)
        return await self._decided(Slot(tenant, space, key), value, ttl)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        if space is Space.SERVER:
            keys = [name for key in keys for name in self._names(key)]
        await self._inner.delete(tenant, space, keys)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        return await self._inner.claim(tenant, key, holder, ttl=ttl)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        await self._inner.release(tenant, key, holder)

    async def close(self) -> None:
        await self._inner.close()

    # Who was first.

    async def _decided(self, slot: Slot, value: bytes, ttl: float | None) -> bytes:
        """The winner. One that cannot be opened gives way, unless another replica can open it, which has the
        next key already: then that one is right, and ours is for this process alone.
        """
        sealed = self._keys.seal(slot, value)
        winner = await self._inner.put_new(*slot, sealed, ttl=ttl)
        opened = value if winner == sealed else self._keys.open(slot, winner)
        if isinstance(opened, Unreadable) and opened is not Unreadable.FOREIGN:
            self._complain(opened)
            await self._remove(slot, winner)
            winner = await self._inner.put_new(*slot, sealed, ttl=ttl)
            opened = value if winner == sealed else self._keys.open(slot, winner)
        if isinstance(opened, Unreadable):
            self._complain(opened)
            return value
        return opened

    async def _remove(self, slot: Slot, junk: bytes) -> None:
        """Unless another process was faster, and has put a good one there."""
        tenant, space, key = slot
        if (await self._inner.get(tenant, space, [key])).get(key) == junk:
            await self._inner.delete(tenant, space, [key])

    # What is kept for good would be lost with the key under which it was first sealed. So it is kept once
    # more under each key that becomes the first, by a name of its own: nothing has to be replaced, and
    # replicas that start at the same moment find the same.

    async def _for_good(self, tenant: bytes, key: bytes, value: bytes) -> bytes:
        known = (await self._servers(tenant, [key])).get(key)
        if known is None:
            await self._say_if_lost(tenant, key)
            known = await self._decided(Slot(tenant, Space.SERVER, key), value, None)
        name = _name(key, self._keys.ids[0])
        return await self._decided(Slot(tenant, Space.SERVER, name), known, None)

    async def _servers(self, tenant: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        names = {key: self._names(key) for key in keys}
        asked = [name for several in names.values() for name in several]
        found = await self._inner.get(tenant, Space.SERVER, asked)
        opened = self._opened(tenant, Space.SERVER, found)
        best = ((key, next(filter(opened.__contains__, names[key]), None)) for key in keys)
        return {key: opened[name] for key, name in best if name is not None}

    async def _say_if_lost(self, tenant: bytes, key: bytes) -> None:
        slot = Slot(tenant, Space.SERVER, key)
        stored = (await self._inner.get(tenant, Space.SERVER, [key])).get(key)
        # A process that starts at the same moment may have put there by now what can be opened.
        if stored is not None and isinstance(self._keys.open(slot, stored), Unreadable):
            log.warning(
                "the server's secret in the store cannot be opened with the keys in encryption.keys, another "
                "is used: callers get other names, and what was kept for them is not found again"
            )

    def _names(self, key: bytes) -> list[bytes]:
        """What is sealed under the first key goes first, the one that was there before any rotation last."""
        return [*(_name(key, key_id) for key_id in self._keys.ids), key]

    def _opened(self, tenant: bytes, space: Space, found: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        opened: dict[bytes, bytes] = {}
        for key, sealed in found.items():
            value = self._keys.open(Slot(tenant, space, key), sealed)
            if isinstance(value, Unreadable):
                self._complain(value)
            else:
                opened[key] = value
        return opened

    def _complain(self, why: Unreadable) -> None:
        """Once for each reason: a wrong key shows itself, and a store full of junk does not fill the log."""
        if why not in self._complained:
            self._complained.add(why)
            log.warning("a value in the store cannot be opened and counts as missing", why=why.value)


def _name(key: bytes, key_id: bytes) -> bytes:
    return key + b"@" + key_id
