"""A value is put, read again and deleted: by the store itself, with nothing that stands in for it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable
from statistics import median
from typing import NamedTuple, TypeVar

from proxy.cli.doctor.finding import Finding, fails, passes, warns
from proxy.ports import NOBODY, Space, Store, StoreUnavailable
from proxy.settings import Settings, masked
from proxy.store import TIME_LIMIT, open_primary
from proxy.store.outage import Outage, Reason
from proxy.tasks import Tasks

T = TypeVar("T")

NAME = "store"
# Longer than a request waits, so that slow can be told from gone.
PATIENCE = 2.0

_ROUNDS = 5
_SIZE = 1024
_LASTS = 60.0  # should this process die in the middle
_LIMIT = 5.0
_CLOSING = 1.0

_HINTS: dict[Reason, str] = {
    "locked": "another program holds the store's file: wait until it is done, or end it",
    "full": "make room, or wait until something has expired",
    "readonly": "let this user write there; of several servers, name the master",
    "corrupt": "keep the file for somebody to look at, and begin a new one",
    "newer": "run the newer Tailfold, or give this one a store of its own",
    "sealed": "give encryption.keys as before",
    "refused": "see to the address in store, and to what its user may do",
    "loading": "the server reads its data: wait until it is done",
    "unavailable": "is the address in store right, and may this user use what is there?",
}


class Medians(NamedTuple):
    """In seconds."""

    put: float
    get: float
    delete: float


async def check(
    settings: Settings, tasks: Tasks, *, url: str | None = None, note: str | None = None
) -> Finding:
    """`url` is where it is done if not in the store itself, as `note` says."""
    limit = settings.redis.timeout if settings.is_shared else TIME_LIMIT
    try:
        medians = await _measured(url or settings.store_url, settings, tasks)
    except StoreUnavailable as problem:
        return unavailable(problem)
    return judged(note or masked(settings.store_url), medians, limit)


def unavailable(problem: StoreUnavailable, where: str | None = None) -> Finding:
    """In the words of the log of `serve`."""
    outage = problem if isinstance(problem, Outage) else Outage("unavailable", str(problem))
    found = f"{where}: {outage}" if where else str(outage)
    return fails(NAME, found, outage.hint or _HINTS[outage.reason])


def judged(where: str, medians: Medians, limit: float) -> Finding:
    """By the slowest, against what a request waits for it."""
    times = ", ".join(f"{name} {took * 1000:,.2f} ms" for name, took in medians._asdict().items())
    found, slowest = f"{where}: {times}", max(medians)
    if slowest >= limit:
        hint = f"a request waits {limit:g} s for it and then goes on without: bring it nearer"
        return fails(NAME, f"too slow, {found}", hint)
    if slowest >= limit / 2:
        hint = f"a request waits {limit:g} s for it: with some load on it, that may not be enough"
        return warns(NAME, f"slow, {found}", hint)
    return passes(NAME, found)


async def _measured(url: str, settings: Settings, tasks: Tasks) -> Medians:
    try:
        async with asyncio.timeout(_LIMIT):
            store = await open_primary(url, tasks, keys=settings.encryption.by_id, time_limit=PATIENCE)
            try:
                rounds = [await _round(store) for _ in range(_ROUNDS)]
            finally:
                await let_go(store)
    except TimeoutError:
        raise Outage("unavailable", f"the store does not answer within {_LIMIT:g} s") from None
    return Medians(*map(median, zip(*rounds, strict=True)))


async def let_go(store: Store) -> None:
    async with asyncio.timeout(_CLOSING):
        await store.close()


async def _round(store: Store) -> Medians:
    key, value = b"doctor-" + secrets.token_bytes(16), os.urandom(_SIZE)
    try:
        put, _ = await _timed(store.put(NOBODY, Space.SERVER, {key: value}, ttl=_LASTS))
        get, found = await _timed(store.get(NOBODY, Space.SERVER, [key]))
    finally:
        delete, _ = await _timed(store.delete(NOBODY, Space.SERVER, [key]))
    if found.get(key) != value:
        raise Outage("unavailable", "what was put into the store a moment ago is not there")
    return Medians(put, get, delete)


async def _timed(question: Awaitable[T]) -> tuple[float, T]:
    began = time.perf_counter()
    answer = await question
    return time.perf_counter() - began, answer
