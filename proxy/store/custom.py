"""A store of another package. Whatever goes wrong in it is an outage and costs no request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from proxy.packages import STORES, brought_along
from proxy.ports import Space, Store, StoreUnavailable
from proxy.store.entries import Entry, Listed
from proxy.store.outage import Outage

OpenStore = Callable[[str], Awaitable[Store]]


class CustomStore:
    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @classmethod
    async def open(cls, url: str) -> CustomStore:
        """By what is registered for the URL's scheme."""
        scheme = url.partition("://")[0]
        with _trouble_told():
            # Importing a driver may take seconds, and other requests go on meanwhile.
            opened = await asyncio.to_thread(_registered, scheme)
            return cls(await opened(url))

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with _trouble_told():
            return await self._inner.get(tenant, space, keys)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        with _trouble_told():
            await self._inner.put(tenant, space, values, ttl=ttl)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        with _trouble_told():
            return await self._inner.put_new(tenant, space, key, value, ttl=ttl)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        with _trouble_told():
            await self._inner.delete(tenant, space, keys)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        with _trouble_told():
            return await self._inner.claim(tenant, key, holder, ttl=ttl)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        with _trouble_told():
            await self._inner.release(tenant, key, holder)

    async def entries(self) -> AsyncIterator[Entry]:
        with _trouble_told():
            async for entry in self._listed().entries():
                yield entry

    async def clear(self, spaces: Collection[Space], *, only_expired: bool) -> int:
        with _trouble_told():
            return await self._listed().clear(spaces, only_expired=only_expired)

    async def close(self) -> None:
        with _trouble_told():
            await self._inner.close()

    def _listed(self) -> Listed:
        if not isinstance(self._inner, Listed):
            raise Outage("unavailable", "this store of another package cannot list what it keeps")
        return self._inner


def _registered(scheme: str) -> OpenStore:
    found = brought_along(STORES, scheme)
    if len(found) != 1:
        raise Outage("unavailable", f"{len(found)} packages register the scheme {scheme} under {STORES}")
    return cast(OpenStore, found[0].load())


@contextmanager
def _trouble_told() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable:
        raise
    # An edge: what a foreign package raises is not known here, and must cost a warning and no request. Its
    # message may quote the URL with a password, a key or a value, so that the type alone is told.
    except Exception as error:  # noqa: BLE001
        raise Outage("unavailable", f"the store has raised {_named(error)}") from None


def _named(error: Exception) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
