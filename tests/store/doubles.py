"""Small peers for the stores: a clock that is set by hand, and stores that fail in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from proxy.ports import Space, Store
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage

FOREVER = 1e6
PATIENCE = 60.0  # seconds, for what must happen however busy the machine is


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Switched(MemoryStore):
    """A store whose disk is pulled and plugged in again."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Outage | None = None
        self.asked = 0
        self.keys: set[bytes] = set()  # of all that was ever put
        self.closed = 0

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self._answer()
        return await super().get(tenant, space, keys)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        self._answer()
        self.keys |= values.keys()
        await super().put(tenant, space, values, ttl=ttl)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        self._answer()
        return await super().put_new(tenant, space, key, value, ttl=ttl)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        self._answer()
        await super().delete(tenant, space, keys)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        self._answer()
        return await super().claim(tenant, key, holder, ttl=ttl)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        self._answer()
        await super().release(tenant, key, holder)

    async def close(self) -> None:
        self.closed += 1

    def _answer(self) -> None:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble


class Gated(MemoryStore):
    """A store that lets a put through only while its gate is open, and remembers what was put together."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        self.puts: list[dict[bytes, bytes]] = []

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        self.puts.append(dict(values))
        self.entered.set()
        await self.gate.wait()
        await super().put(tenant, space, values, ttl=ttl)


async def never_opens() -> Store:
    raise Outage("unavailable", "there is none")
