"""The store that requests use: it always answers, from memory while the real one cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from proxy.ports import NOBODY, Space, Store, StoreUnavailable
from proxy.settings import masked
from proxy.store.interim import Interim, OnOverruled, unheard
from proxy.store.limit import Limit
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.slots import Slot
from proxy.tasks import Tasks

log = structlog.get_logger("tailfold")

T = TypeVar("T")

_CLOSING = 2.0  # seconds that closing may take: SQLite tidies its file then
_DELETED_AT_ONCE = 32  # freeing a large value takes its time, and one may ask for thousands
_SLOWEST_DISK = 8 * 1024**2  # bytes in a second: less than that is an outage
_PROOF = b"reachable"

TIME_LIMIT = 1.0  # seconds that a request waits for a store of this machine, which may be busy
PAUSE = 30.0  # seconds until a store that has failed is tried again


def _uncounted(_reason: str) -> None:
    pass


def _unmeasured(_operation: str, _seconds: float) -> None:
    pass


def _unnoticed() -> None:
    pass


class GuardedStore:
    """The primary is opened in the background by the first who asks, anew `pause` seconds after a failure.

    What was put during an outage is forgotten afterwards, but for the winners of `put_new`, which `Interim`
    holds on to; where one has to give way, `on_overruled` is told what holds from then on. Claims are made in
    memory meanwhile, so that two processes may do the same work.
    """

    def __init__(
        self,
        open_primary: Callable[[], Awaitable[Store]],
        tasks: Tasks,
        *,
        url: str,
        fallback: Store | None = None,
        on_outage: Callable[[str], None] = _uncounted,
        on_back: Callable[[], None] = _unnoticed,
        on_asked: Callable[[str, float], None] = _unmeasured,
        on_overruled: OnOverruled = unheard,
        time_limit: float = TIME_LIMIT,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_primary = open_primary
        self._tasks = tasks
        self._url = masked(url)
        self._interim = Interim(fallback or MemoryStore(), on_overruled)
        self._on_outage = on_outage
        self._on_back = on_back
        self._on_asked = on_asked
        self._time_limit = time_limit
        self._pause = pause
        self._clock = clock
        self._primary: Store | None = None
        self._opening: asyncio.Task[None] | None = None
        self._retry_at = float("-inf")
        self._in_outage = False

    async def begin(self, patience: float) -> None:
        """Open the primary before the first request needs it: importing a driver, a handshake or a cluster's
        map take longer than a request waits. Where `patience` does not suffice it goes on in the background.
        """
        if self._primary is None and self._opening is None:
            self._opening = self._tasks.start(self._open(), name="open the store")
            await asyncio.wait([self._opening], timeout=patience)

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await self._ask("get", lambda store: store.get(tenant, space, keys))
        return await self._interim.agreed(tenant, space, keys, found)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        size = sum(map(len, values.values()))
        await self._ask("put", lambda store: store.put(tenant, space, values, ttl=ttl), size)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        def question(store: Store) -> Awaitable[bytes]:
            return store.put_new(tenant, space, key, value, ttl=ttl)

        winner = await self._ask("put_new", question, len(value))
        return await self._interim.decided(Slot(tenant, space, key), winner, ttl)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        await self._interim.forget(tenant, space, keys)
        for start in range(0, len(keys), _DELETED_AT_ONCE):
            await self._delete_few(tenant, space, keys[start : start + _DELETED_AT_ONCE])

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        return await self._ask("claim", lambda store: store.claim(tenant, key, holder, ttl=ttl))

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        await self._ask("release", lambda store: store.release(tenant, key, holder))

    async def close(self) -> None:
        if (opening := self._opening) is not None:
            await asyncio.wait([opening], timeout=_CLOSING)
            opening.cancel()
            await asyncio.wait([opening])
        self._retry_at = float("inf")
        primary, self._primary = self._primary, None
        if primary is not None:
            await self._let_go(primary)
        await self._interim.close()

    async def _delete_few(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        await self._ask("delete", lambda store: store.delete(tenant, space, keys))

    async def _ask(self, operation: str, question: Callable[[Store], Awaitable[T]], size: int = 0) -> T:
        primary: Store | None = None
        time_limit = self._time_limit + size / _SLOWEST_DISK
        try:
            async with Limit(time_limit):
                primary = await self._reachable()
                if primary is not None:
                    began = self._clock()
                    answer = await question(primary)
                    self._on_asked(operation, self._clock() - began)
                    return answer
        except StoreUnavailable as problem:
            self._lost(primary, problem)
        except TimeoutError:
            self._lost(primary, Outage("unavailable", f"no answer within {time_limit:.3g} s"))
        return await question(self._interim)

    async def _reachable(self) -> Store | None:
        if self._primary is None and self._opening is None and self._clock() >= self._retry_at:
            self._opening = self._tasks.start(self._open(), name="open the store")
        if self._opening is not None and not self._in_outage:
            # Only the first opening is worth waiting for. It goes on when the one who waits has left.
            await asyncio.wait([self._opening])
        return self._primary

    async def _open(self) -> None:
        """Without a time limit: a large file may need a while to be migrated, and nobody waits for long."""
        try:
            primary = await self._open_primary()
            await self._prove(primary)
        except StoreUnavailable as problem:
            self._warn(problem)
        else:
            self._primary = primary
            if self._in_outage:
                self._in_outage = False
                log.info("the store is back", store=self._url)
                self._on_back()
        finally:
            self._opening = None
            self._retry_at = self._clock() + self._pause

    async def _prove(self, primary: Store) -> None:
        """An outage is over when a write has succeeded: a full disk can still be read."""
        try:
            await primary.put(NOBODY, Space.SERVER, {_PROOF: b""}, ttl=60)
            await self._interim.tell(primary)
        except StoreUnavailable:
            await self._let_go(primary)
            raise

    def _lost(self, primary: Store | None, problem: StoreUnavailable) -> None:
        if primary is not self._primary:
            return  # somebody else has noticed before
        self._warn(problem)
        if primary is not None:
            self._primary = None
            self._retry_at = self._clock() + self._pause
            # A read-only or moved file is seen anew only by a new connection, so this one goes in any case.
            self._tasks.start(self._let_go(primary), name="close the store")

    def _warn(self, problem: StoreUnavailable) -> None:
        if self._in_outage:
            return
        self._in_outage = True
        reason = problem.reason if isinstance(problem, Outage) else "unavailable"
        log.warning(
            "the store cannot be used, what is learned meanwhile is kept in memory and not written later",
            store=self._url,
            reason=reason,
            problem=str(problem),
            retry_after=self._pause,
        )
        self._on_outage(reason)

    async def _let_go(self, primary: Store) -> None:
        try:
            async with asyncio.timeout(_CLOSING):
                await primary.close()
        except (StoreUnavailable, TimeoutError) as problem:
            log.debug("the store could not be closed", store=self._url, problem=type(problem).__name__)
