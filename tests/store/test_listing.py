"""Stores that tell all they keep, and are cleared out."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from math import inf
from pathlib import Path
from typing import Protocol

import pytest
from folder_store import FolderStore

from proxy.ports import HOMED, NOBODY, Space, Store
from proxy.settings.redis_address import address_in
from proxy.store.custom import CustomStore
from proxy.store.entries import Entry, Listed
from proxy.store.outage import Outage
from proxy.store.redis import RedisStore
from proxy.store.sqlite import SqliteStore
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE, Clock
from tests.store.servers import Servers, server

ALICE, BOB = b"alice" * 6, b"bob" * 10
HOME, OTHER_HOME = b"h" * 16, b"o" * 16
KEPT = frozenset(Space) - {Space.CLAIMS}


class ListedStore(Store, Listed, Protocol):
    """Both."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as started:
        yield started


@pytest.fixture(params=["sqlite", "custom", "valkey", "cluster"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, servers: Servers
) -> AsyncIterator[ListedStore]:
    tasks, kind = Tasks(), str(request.param)
    opened: ListedStore
    if kind in ("valkey", "cluster"):
        address = address_in(servers.empty(kind))
        opened = await RedisStore.open(address, tasks, timeout=PATIENCE, clock=clock)
    else:
        file = await SqliteStore.open(tmp_path / "state.db", clock=clock)
        opened = file if kind == "sqlite" else CustomStore(file)
    yield opened
    await opened.close()
    await tasks.close(timeout=PATIENCE)


async def told(store: Listed) -> set[Entry]:
    """Redis counts in thousandths of a second."""
    entries = [entry async for entry in store.entries()]
    assert len(entries) == len({entry.slot for entry in entries})
    return {
        entry._replace(until=None if entry.until is None else round(entry.until, 2))
        if entry.until != inf
        else entry
        for entry in entries
    }


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("state.db*"))


async def test_a_store_tells_all_it_keeps_and_until_when(store: ListedStore, clock: Clock) -> None:
    expected = set()
    for tenant in (ALICE, BOB, NOBODY):
        for space in KEPT:
            for key in (HOME + b"a", HOME + b"b", OTHER_HOME + b"a"):
                await store.put(tenant, space, {key: b"v" + key}, ttl=10.25)
                expected.add(Entry(tenant, space, key, b"v" + key, clock.now + 10.25))
    await store.put(ALICE, Space.MESSAGES, {b"": b""}, ttl=inf)
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"s", ttl=None)
    expected |= {
        Entry(ALICE, Space.MESSAGES, b"", b"", inf),
        Entry(NOBODY, Space.SERVER, b"secret", b"s", None),
    }
    assert await told(store) == expected


async def test_what_has_expired_is_not_told_nor_who_is_at_what(store: ListedStore, clock: Clock) -> None:
    await store.put(ALICE, Space.LANES, {HOME + b"short": b"1"}, ttl=10)
    await store.put(ALICE, Space.LANES, {HOME + b"long": b"2"}, ttl=20)
    await store.claim(ALICE, b"work", b"one", ttl=20)
    clock.now += 10
    assert {entry.value for entry in await told(store)} == {b"2"}


async def test_more_than_one_page_is_told_whole(store: ListedStore) -> None:
    for space in (Space.MESSAGES, Space.COUNTS):
        values = {HOME + number.to_bytes(2, "big"): b"" for number in range(1500)}
        await store.put(ALICE, space, values, ttl=FOREVER)
    for number in range(300):
        await store.put(ALICE, Space.FOLDS, {number.to_bytes(16, "big"): b""}, ttl=FOREVER)
    assert len(await told(store)) == 3300


async def test_what_is_cleared_is_gone_and_nothing_else(store: ListedStore) -> None:
    for tenant in (ALICE, BOB):
        for space in KEPT:
            await store.put(tenant, space, {HOME + b"a": b"1", HOME + b"b": b"2"}, ttl=FOREVER)
    await store.put_new(ALICE, Space.FOLDS, HOME + b"c", b"3", ttl=None)
    assert await store.clear([Space.FOLDS, Space.MESSAGES], only_expired=False) == 9
    assert {entry.space for entry in await told(store)} == KEPT - {Space.FOLDS, Space.MESSAGES}
    assert len(await told(store)) == 4 * (len(KEPT) - 2)
    await store.claim(ALICE, b"work", b"one", ttl=FOREVER)
    await store.clear([*Space], only_expired=False)
    assert await told(store) == set()
    assert await store.claim(ALICE, b"work", b"two", ttl=FOREVER)


async def test_what_has_expired_is_cleared_without_the_rest(store: ListedStore, clock: Clock) -> None:
    for space in sorted(HOMED):
        await store.put(ALICE, space, {HOME + b"short": b"1"}, ttl=10)
        await store.put(ALICE, space, {HOME + b"long": b"2"}, ttl=FOREVER)
        await store.put_new(ALICE, space, HOME + b"good", b"3", ttl=None)
    clock.now += 10
    assert await store.clear([*Space], only_expired=True) == len(HOMED)
    assert await store.clear([*Space], only_expired=True) == 0
    assert len(await told(store)) == 2 * len(HOMED)


async def test_what_is_not_ours_is_not_told_and_cleared_only_with_everything(clock: Clock) -> None:
    tasks = Tasks()
    with server() as one:
        store = await RedisStore.open(address_in(one.url), tasks, timeout=PATIENCE, clock=clock)
        await store.put(ALICE, Space.FOLDS, {HOME + b"a": b"1"}, ttl=FOREVER)
        hash_of_ours = one.client.keys("*")[0]
        one.client.hset(hash_of_ours, "junk", "junk")
        one.client.set("tailfold:1:nonsense", "junk")
        one.client.set("tailfold:1:folds:{!:!}", "junk")
        one.client.lpush("tailfold:1:messages:YQ:YQ", "junk")
        one.client.set("somebody else's", "stays")
        assert {entry.value for entry in await told(store)} == {b"1"}
        await store.clear([Space.FOLDS], only_expired=False)
        assert one.client.exists("tailfold:1:nonsense", "tailfold:1:messages:YQ:YQ") == 2
        await store.clear([*Space], only_expired=False)
        assert one.client.keys("*") == [b"somebody else's"]
        await store.close()
        await tasks.close(timeout=PATIENCE)


async def test_a_server_that_goes_away_is_no_empty_store(clock: Clock) -> None:
    """Or an export would be whole with nothing in it."""
    tasks = Tasks()
    with server() as one:
        store = await RedisStore.open(address_in(one.url), tasks, timeout=PATIENCE, clock=clock)
        await store.put(ALICE, Space.FOLDS, {HOME + b"a": b"1"}, ttl=FOREVER)
        one.kill()
        with pytest.raises(Outage):
            await told(store)
        with pytest.raises(Outage):
            await store.clear([*Space], only_expired=False)
        await store.close()
        await tasks.close(timeout=PATIENCE)


async def test_times_are_told_by_the_clock_of_whoever_asks(servers: Servers) -> None:
    """The server's differs from ours by days here."""
    clock, tasks = Clock(), Tasks()
    store = await RedisStore.open(address_in(servers.empty("valkey")), tasks, timeout=PATIENCE, clock=clock)
    assert abs(store.ahead) > 24 * 3600
    await store.put(ALICE, Space.FOLDS, {HOME + b"a": b"1"}, ttl=100)
    (entry,) = await told(store)
    assert entry.until == clock.now + 100
    await store.close()
    await tasks.close(timeout=PATIENCE)


async def test_what_was_cleared_is_not_left_behind_in_the_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    for number in range(50):
        await store.put(ALICE, Space.MESSAGES, {bytes([number]): b"canary" * 2000}, ttl=FOREVER)
    assert b"canary" in files(tmp_path)
    await store.clear([*Space], only_expired=False)
    assert b"canary" not in files(tmp_path)
    await store.close()


async def test_things_of_a_newer_tailfold_are_passed_over(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    await store.put(ALICE, Space.FOLDS, {b"k": b"1"}, ttl=FOREVER)
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute("INSERT INTO facts VALUES (?, 'dreams', ?, ?, ?)", (ALICE, b"k", b"2", inf))
    assert [entry.value async for entry in store.entries()] == [b"1"]
    await store.close()


async def test_a_custom_store_that_cannot_tell_says_so(tmp_path: Path) -> None:
    store = CustomStore(FolderStore(tmp_path))
    with pytest.raises(Outage, match="cannot list"):
        await told(store)
    with pytest.raises(Outage, match="cannot list"):
        await store.clear([*Space], only_expired=False)
