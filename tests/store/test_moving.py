"""What goes from one store to another is the same there."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.ports import HOME_SIZE, NOBODY, Space
from proxy.settings.redis_address import address_in
from proxy.store.entries import Entry
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.moving import Moved, NotMovable, exported, imported
from proxy.store.redis import RedisStore
from proxy.store.sealed import SealedStore
from proxy.store.slots import SECRET
from proxy.store.sqlite import SqliteStore
from proxy.tasks import Tasks
from tests.store.doubles import PATIENCE, Clock
from tests.store.servers import Servers

ALICE, BOB = b"alice" * 4, b"bob"
SEALS, OTHERS = Keyring({"k1": b"1" * 32}), Keyring({"k2": b"2" * 32})
OURS = b"the server's secret"
MOVED = frozenset(Space) - {Space.CLAIMS, Space.SERVER}
ListedStore = SqliteStore | RedisStore

keys = st.binary(min_size=HOME_SIZE, max_size=40) | st.just(bytes(HOME_SIZE) + b"k")
# No value of ours begins like a sealed one.
values = st.binary(max_size=100).filter(lambda value: value[:1] != b"\xc1")
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from([ALICE, BOB, NOBODY]),
        st.sampled_from(sorted(MOVED)),
        keys,
        values,
        st.none() | st.just(inf) | st.integers(1_000_001, 2_000_000).map(float),
    ),
    max_size=30,
    unique_by=lambda entry: entry.slot,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as started:
        yield started


@asynccontextmanager
async def a_file(clock: Clock) -> AsyncIterator[SqliteStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "state.db", clock=clock)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def a_server(servers: Servers, clock: Clock) -> AsyncIterator[RedisStore]:
    tasks = Tasks()
    address = address_in(servers.empty("valkey"))
    store = await RedisStore.open(address, tasks, timeout=PATIENCE, clock=clock)
    try:
        yield store
    finally:
        await store.close()
        await tasks.close(timeout=PATIENCE)


async def fill(store: ListedStore, entries: Sequence[Entry], clock: Clock) -> None:
    for entry in entries:
        await store.put_new(*entry.slot, entry.value, ttl=entry.lasts(clock.now))


async def lines_of(
    store: ListedStore, *, keyring: Keyring | None = None, opened: bool = False
) -> tuple[list[bytes], Moved]:
    moved = Moved()
    lines = [line async for line in exported(store, OURS, moved, keyring=keyring, opened=opened)]
    return lines, moved


async def put_in(
    store: ListedStore | SealedStore,
    lines: Sequence[bytes],
    clock: Clock,
    *,
    keyring: Keyring | None = None,
    secret: bytes | None = None,
) -> Moved:
    moved = Moved()
    await imported(lines, store, secret, moved, keyring=keyring, clock=clock)
    return moved


async def kept_in(store: ListedStore) -> set[Entry]:
    return {
        entry._replace(until=entry.until if entry.until in (None, inf) else round(entry.until or 0, 2))
        async for entry in store.entries()
        if entry.space is not Space.SERVER
    }


@given(entries=ENTRIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_there_and_back_everything_is_the_same(servers: Servers, entries: list[Entry]) -> None:
    async def there_and_back() -> None:
        clock = Clock()
        async with a_file(clock) as old, a_server(servers, clock) as shared, a_file(clock) as new:
            await fill(old, entries, clock)
            lines, told = await lines_of(old)
            there = await put_in(shared, lines, clock)
            lines_back, _ = await lines_of(shared)
            await put_in(new, lines_back, clock)
            assert told.entries == there.entries == len(entries) + 1
            assert await kept_in(old) == await kept_in(shared) == await kept_in(new) == {*entries}
            assert await new.get(*SECRET[:2], [SECRET.key]) == {SECRET.key: OURS}

    asyncio.run(there_and_back())


@given(entries=ENTRIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_sealed_is_sealed_on_its_way_and_under_the_new_key_where_it_arrives(
    servers: Servers, entries: list[Entry]
) -> None:
    async def under_another_key() -> None:
        clock = Clock()
        both = Keyring({"k2": b"2" * 32, "k1": b"1" * 32})
        async with a_file(clock) as old, a_server(servers, clock) as shared:
            for entry in entries:
                await SealedStore(old, SEALS).put_new(*entry.slot, entry.value, ttl=entry.lasts(clock.now))
            lines, _ = await lines_of(old, keyring=SEALS)
            await put_in(SealedStore(shared, both), lines, clock, keyring=both)
            for entry in entries:
                tenant, space, key = entry.slot
                found = await SealedStore(shared, OTHERS).get(tenant, space, [key])
                assert found == {key: entry.value}

    asyncio.run(under_another_key())


async def test_a_sealed_export_holds_nothing_that_can_be_read() -> None:
    clock = Clock()
    async with a_file(clock) as old:
        await SealedStore(old, SEALS).put(ALICE, Space.MESSAGES, {b"k": b"a canary"}, ttl=10)
        sealed, _ = await lines_of(old, keyring=SEALS)
        opened, _ = await lines_of(old, keyring=SEALS, opened=True)
    # As text is written into such a file.
    canary, secret = b"YSBjYW5hcnk=", b"dGhlIHNlcnZlcidzIHNlY3JldA=="
    assert not any(canary in line or secret in line for line in sealed)
    assert any(canary in line for line in opened)
    assert any(secret in line for line in opened)


async def test_what_cannot_be_opened_is_counted_by_the_reason_and_left_out() -> None:
    clock = Clock()
    async with a_file(clock) as old, a_file(clock) as new:
        await SealedStore(old, SEALS).put(ALICE, Space.FOLDS, {b"k": b"sealed"}, ttl=10)
        await old.put(ALICE, Space.FOLDS, {b"plain": b"plain"}, ttl=10)
        _, told = await lines_of(old)
        assert told == Moved(entries=2, left_out=Counter([Unreadable.FOREIGN]))
        _, told = await lines_of(old, keyring=OTHERS)
        assert told == Moved(entries=1, left_out=Counter([Unreadable.FOREIGN, Unreadable.PLAIN]))
        lines, _ = await lines_of(old, keyring=SEALS)
        with pytest.raises(NotMovable, match=r"encryption\.keys"):
            await put_in(new, lines, clock)
        with pytest.raises(NotMovable, match="cannot be decrypted"):
            await put_in(new, lines, clock, keyring=OTHERS)
        assert await kept_in(new) == set()


async def test_what_is_there_already_stays_and_a_second_import_changes_nothing() -> None:
    clock = Clock()
    async with a_file(clock) as old, a_file(clock) as new:
        await old.put(ALICE, Space.FOLDS, {b"k": b"theirs", b"other": b"theirs"}, ttl=10)
        await new.put(ALICE, Space.FOLDS, {b"k": b"ours"}, ttl=10)
        lines, _ = await lines_of(old)
        assert await put_in(new, lines, clock) == Moved(entries=2, kept=1)
        assert await put_in(new, lines, clock) == Moved(entries=2, kept=1)
        assert await new.get(ALICE, Space.FOLDS, [b"k", b"other"]) == {b"k": b"ours", b"other": b"theirs"}


async def test_what_expires_on_its_way_does_not_arrive() -> None:
    clock = Clock()
    async with a_file(clock) as old, a_file(clock) as new:
        await old.put(ALICE, Space.FOLDS, {b"short": b"1"}, ttl=10)
        await old.put(ALICE, Space.FOLDS, {b"long": b"2"}, ttl=20)
        lines, _ = await lines_of(old)
        clock.now += 10
        assert await put_in(new, lines, clock) == Moved(entries=2, expired=1)
        assert {entry.value for entry in await kept_in(new)} == {b"2"}


@pytest.mark.parametrize("said", [None, b"another secret than theirs"])
async def test_callers_with_other_names_are_refused_before_anything_is_written(said: bytes | None) -> None:
    """Nobody would ever find what was imported."""
    clock = Clock()
    async with a_file(clock) as old, a_file(clock) as new:
        await old.put(ALICE, Space.FOLDS, {b"k": b"1"}, ttl=10)
        if said is None:
            await new.put_new(*SECRET, b"one of its own", ttl=None)
        lines, _ = await lines_of(old)
        with pytest.raises(NotMovable, match="another secret"):
            await put_in(new, lines, clock, secret=said)
        assert await kept_in(new) == set()
        assert await put_in(new, lines, clock, secret=OURS) == Moved(entries=2)


async def a_file_of_five() -> list[bytes]:
    clock = Clock()
    async with a_file(clock) as old:
        await old.put(ALICE, Space.FOLDS, {bytes([each]): b"1" for each in range(4)}, ttl=10)
        lines, _ = await lines_of(old)
    return lines


async def test_a_file_that_was_cut_off_is_told_wherever_it_was_cut() -> None:
    whole = b"".join(await a_file_of_five())
    for end in range(0, len(whole) - 1, 7):
        async with a_file(Clock()) as new:
            with pytest.raises(NotMovable):
                await put_in(new, whole[:end].splitlines(keepends=True), Clock())


async def test_a_file_that_lacks_a_line_is_told() -> None:
    lines = await a_file_of_five()
    for number in range(len(lines)):
        async with a_file(Clock()) as new:
            with pytest.raises(NotMovable):
                await put_in(new, lines[:number] + lines[number + 1 :], Clock())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "not a file of tailfold store export"),
        (b"\x00\xff\n", "not a file of tailfold store export"),
        (b'{"messages": []}\n', "not a file of tailfold store export"),
        (b"[" * 100_000, "not a file of tailfold store export"),
        (b'{"is":"head","format":"tailfold store","version":2,"sealed":false}\n', "a newer Tailfold"),
        (b'{"is":"head","format":"tailfold store","version":1,"sealed":false}\n', "cut off"),
    ],
)
async def test_what_is_no_such_file_is_told(line: bytes, told: str) -> None:
    async with a_file(Clock()) as new:
        with pytest.raises(NotMovable, match=told):
            await put_in(new, [line], Clock())


async def test_a_line_that_cannot_be_read_is_told_by_its_number() -> None:
    lines = await a_file_of_five()
    for junk in (b"junk\n", b'{"is":"entry"}\n', b"[" * 100_000, lines[2].replace(b"folds", b"dreams")):
        async with a_file(Clock()) as new:
            with pytest.raises(NotMovable, match="line 3 of the file"):
                await put_in(new, [*lines[:2], junk, *lines[3:]], Clock())
