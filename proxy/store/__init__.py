"""Where state is kept between requests, and between two lives of the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote_to_bytes

from proxy.ports import Store
from proxy.settings.redis_address import address_in
from proxy.settings.values import STORE_SCHEMES
from proxy.store import mark
from proxy.store.custom import CustomStore
from proxy.store.guarded import PAUSE, TIME_LIMIT, GuardedStore
from proxy.store.interim import OnOverruled, unheard
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.sqlite import SqliteStore
from proxy.store.sqlite_file import values_in
from proxy.store.unsealed import UnsealedStore
from proxy.tasks import Tasks

__all__ = ["PAUSE", "TIME_LIMIT", "is_sealed", "open_primary", "open_store"]

_SQLITE = "sqlite:///"

Opener = Callable[[], Awaitable[Store]]


def _unnoticed() -> None:
    pass


def _unheard_of(_reason: str) -> None:
    pass


def _unmeasured(_operation: str, _seconds: float) -> None:
    pass


def _uncounted(_values: int) -> None:
    pass


def open_store(
    url: str,
    tasks: Tasks,
    *,
    keys: Mapping[str, bytes] | None = None,
    on_outage: Callable[[str], None],
    on_back: Callable[[], None] = _unnoticed,
    on_asked: Callable[[str, float], None] = _unmeasured,
    on_foreign: Callable[[int], None] = _uncounted,
    on_overruled: OnOverruled = unheard,
    pause: float = PAUSE,
    time_limit: float = TIME_LIMIT,
) -> Store:
    """The store for a URL that the settings have accepted, sealed where there are keys; one that is sealed is
    not used without them. Nothing is touched before it is first used.
    """
    open_redis = partial(_open_redis, url, tasks, time_limit, on_foreign)
    opener = _opener(url, on_outage, open_redis)
    if opener is None:
        return MemoryStore()
    return GuardedStore(
        _for_good(opener, keys),
        tasks,
        url=url,
        on_outage=on_outage,
        on_back=on_back,
        on_asked=on_asked,
        on_overruled=on_overruled,
        time_limit=time_limit,
        pause=pause,
    )


async def open_primary(
    url: str, tasks: Tasks, *, keys: Mapping[str, bytes] | None = None, time_limit: float = TIME_LIMIT
) -> Store:
    """The store itself, with nothing that stands in for it: for whoever wants to know how it fares. Raises
    StoreUnavailable.
    """
    open_redis = partial(_open_redis, url, tasks, time_limit, _uncounted)
    opener = _opener(url, _unheard_of, open_redis)
    return MemoryStore() if opener is None else await _sealed(opener, keys)()


async def is_sealed(url: str, tasks: Tasks, *, time_limit: float = TIME_LIMIT) -> bool:
    """Does somebody keep sealed values there? Nothing is made or written. Raises StoreUnavailable."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return False
    if scheme == "sqlite":
        values = await asyncio.to_thread(values_in, sqlite_path(url), mark.WHERE_IT_SHOWS)
        return any(map(mark.is_sealed, values))
    store = await open_primary(url, tasks, time_limit=time_limit)
    try:
        return await mark.has_sign(store)
    finally:
        await store.close()


def _opener(url: str, on_outage: Callable[[str], None], open_redis: Opener) -> Opener | None:
    """None where there is nothing to open: memory is simply there."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        return None
    if scheme not in STORE_SCHEMES:
        return partial(CustomStore.open, url)
    if scheme == "sqlite":
        return partial(_open_file, sqlite_path(url), on_outage)
    return open_redis


async def _open_file(path: Path, on_outage: Callable[[str], None]) -> Store:
    store = await SqliteStore.open(path)
    if store.replaced is not None:
        on_outage("corrupt")
    return store


async def _open_redis(url: str, tasks: Tasks, timeout: float, on_foreign: Callable[[int], None]) -> Store:
    from proxy.store.redis import RedisStore  # importing its library takes a while that others need not pay

    return await RedisStore.open(address_in(url), tasks, timeout=timeout, on_foreign=on_foreign)


def _for_good(opened: Opener, keys: Mapping[str, bytes] | None) -> Opener:
    """Whoever comes to it later sees whether it is sealed, and does not go on in clear."""

    async def opened_for_good() -> Store:
        store = await opened()
        try:
            if keys:
                await mark.put_sign(store)
            elif await mark.has_sign(store):
                raise Outage("sealed", "what it keeps is encrypted, and encryption.keys is not set")
        except BaseException:
            await store.close()
            raise
        return store if keys else UnsealedStore(store)

    return _sealed(opened_for_good, keys)


def _sealed(opened: Opener, keys: Mapping[str, bytes] | None) -> Opener:
    """What stands in for the store during an outage stays as it is: it lives in memory alone."""
    if not keys:
        return opened
    from proxy.store.keyring import Keyring  # takes 30 ms, which start-up pays only where something is sealed
    from proxy.store.sealed import SealedStore

    keyring = Keyring(keys)

    async def opened_and_sealed() -> Store:
        return SealedStore(await opened(), keyring)

    return opened_and_sealed


def sqlite_path(url: str) -> Path:
    """`sqlite:///state.db` lies in the working directory, `sqlite:////var/state.db` where it says."""
    return Path(os.fsdecode(unquote_to_bytes(url.removeprefix(_SQLITE))))
