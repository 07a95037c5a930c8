"""A store whose values are in clear, and which does not take silently what others have sealed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from proxy.ports import Space, Store
from proxy.store.mark import is_sealed

log = structlog.get_logger("tailfold")


class UnsealedStore:
    """Any store, without keys. A sealed value is a miss, and the first one is told."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._complained = False

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await self._inner.get(tenant, space, keys)
        if not any(map(is_sealed, found.values())):
            return found
        self._complain()
        return {key: value for key, value in found.items() if not is_sealed(value)}

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        await self._inner.put(tenant, space, values, ttl=ttl)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        winner = await self._inner.put_new(tenant, space, key, value, ttl=ttl)
        if not is_sealed(winner):
            return winner
        # It stays for those who can open it; ours is for this process alone.
        self._complain()
        return value

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        await self._inner.delete(tenant, space, keys)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        return await self._inner.claim(tenant, key, holder, ttl=ttl)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        await self._inner.release(tenant, key, holder)

    async def close(self) -> None:
        await self._inner.close()

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            log.warning(
                "the store holds encrypted values and no encryption.keys are set: they count as missing, and "
                "what is stored now is IN CLEAR beside them"
            )
