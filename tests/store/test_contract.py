"""What every store promises, whichever it is."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.ports import NOBODY, Space, Store
from proxy.store.guarded import GuardedStore
from proxy.store.memory import MemoryStore
from proxy.store.sqlite import SqliteStore
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE, Clock, never_opens

ALICE, BOB = b"alice" * 6, b"bob" * 10
KINDS = ["memory", "sqlite", "guarded sqlite", "guarded and broken"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(kind: str, folder: Path, clock: Clock, tasks: Tasks) -> Store:
    async def opened() -> Store:
        return await SqliteStore.open(folder / "state.db", clock=clock)

    fallback = MemoryStore(clock=clock)
    if kind == "guarded sqlite":
        return GuardedStore(opened, tasks, url="sqlite:///state.db", fallback=fallback, time_limit=PATIENCE)
    return GuardedStore(never_opens, tasks, url="sqlite:///state.db", fallback=fallback)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    tasks = Tasks()
    made_store: Store
    if request.param == "memory":
        made_store = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        made_store = await SqliteStore.open(tmp_path / "state.db", clock=clock)
    else:
        made_store = made(request.param, tmp_path, clock, tasks)
    yield made_store
    await made_store.close()
    await tasks.close(timeout=PATIENCE)


async def test_what_was_put_is_found_and_nothing_else(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"a": b"1", b"b": b"2"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"2"}


async def test_a_tenant_never_finds_what_another_has_stored(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"alice's"}, ttl=FOREVER)
    await store.put_new(ALICE, Space.SERVER, b"s", b"alice's", ttl=None)
    for other in (BOB, NOBODY):
        assert await store.get(other, Space.COUNTS, [b"k"]) == {}
        assert await store.get(other, Space.SERVER, [b"s"]) == {}
    assert await store.put_new(BOB, Space.SERVER, b"s", b"bob's", ttl=None) == b"bob's"
    assert await store.get(ALICE, Space.SERVER, [b"s"]) == {b"s": b"alice's"}


async def test_keys_of_one_space_never_meet_keys_of_another(store: Store) -> None:
    for space in Space:
        await store.put(ALICE, space, {b"k": space.encode()}, ttl=FOREVER)
    for space in Space:
        assert await store.get(ALICE, space, [b"k"]) == {b"k": space.encode()}


async def test_a_value_that_is_there_is_replaced(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"old", b"other": b"stays"}, ttl=FOREVER)
    await store.put(ALICE, Space.COUNTS, {b"k": b"new"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"k", b"other"]) == {b"k": b"new", b"other": b"stays"}


async def test_a_value_is_gone_when_its_time_is_over(store: Store, clock: Clock) -> None:
    await store.put(ALICE, Space.COUNTS, {b"short": b"1"}, ttl=10)
    await store.put(ALICE, Space.COUNTS, {b"long": b"2"}, ttl=20)
    clock.now += 9.5
    assert set(await store.get(ALICE, Space.COUNTS, [b"short", b"long"])) == {b"short", b"long"}
    clock.now += 0.5
    assert set(await store.get(ALICE, Space.COUNTS, [b"short", b"long"])) == {b"long"}


async def test_replacing_a_value_renews_its_time(store: Store, clock: Clock) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=10)
    clock.now += 9
    await store.put(ALICE, Space.COUNTS, {b"k": b"2"}, ttl=10)
    clock.now += 9
    assert await store.get(ALICE, Space.COUNTS, [b"k"]) == {b"k": b"2"}


async def test_the_first_to_settle_decides_for_good(store: Store, clock: Clock) -> None:
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None) == b"first"
    clock.now += 100 * FOREVER
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"first"
    assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"first"}


async def test_what_is_settled_is_not_replaced_by_a_put(store: Store) -> None:
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"settled", ttl=None)
    await store.put(NOBODY, Space.SERVER, {b"secret": b"put", b"other": b"put"}, ttl=1)
    assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"settled"}
    assert await store.get(NOBODY, Space.SERVER, [b"other"]) == {b"other": b"put"}


async def test_settling_takes_the_value_that_is_there_but_not_an_expired_one(
    store: Store, clock: Clock
) -> None:
    await store.put(NOBODY, Space.SERVER, {b"live": b"put", b"dead": b"put"}, ttl=10)
    assert await store.put_new(NOBODY, Space.SERVER, b"live", b"settled", ttl=None) == b"put"
    clock.now += 10
    assert await store.put_new(NOBODY, Space.SERVER, b"dead", b"settled", ttl=None) == b"settled"
    assert await store.get(NOBODY, Space.SERVER, [b"live", b"dead"]) == {b"live": b"put", b"dead": b"settled"}


async def test_nothing_in_gives_nothing_out(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, []) == {}
    await store.put(ALICE, Space.COUNTS, {b"": b""}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b""]) == {b"": b""}


async def test_keys_and_values_are_bytes_of_any_kind(store: Store) -> None:
    values = {bytes([byte]): bytes([byte, 0, 255 - byte]) for byte in range(256)}
    values |= {b"\0": b"\0\0", b"a\0b": b"\xff\xfe", b"a": b"'; --"}
    await store.put(ALICE, Space.COUNTS, values, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, list(values)) == values


async def test_a_large_value_comes_back_whole(store: Store) -> None:
    value = bytes(range(256)) * 4096 * 8
    await store.put(ALICE, Space.COUNTS, {b"k": value}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"k"]) == {b"k": value}


@pytest.mark.parametrize("count", [1, 3, 511, 512, 513, 5000])
async def test_many_keys_are_asked_at_once(store: Store, count: int) -> None:
    values = {number.to_bytes(4, "big"): str(number).encode() for number in range(count)}
    await store.put(ALICE, Space.COUNTS, values, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [*values, b"absent"]) == values


async def test_a_key_asked_twice_is_found_once(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.COUNTS, [b"k", b"k", b"k"]) == {b"k": b"1"}


async def test_concurrent_callers_do_not_disturb_each_other(store: Store) -> None:
    async def one(number: int) -> dict[bytes, bytes]:
        key = str(number).encode()
        await store.put(ALICE, Space.COUNTS, {key: key}, ttl=FOREVER)
        return await store.get(ALICE, Space.COUNTS, [key])

    answers = await asyncio.gather(*(one(number) for number in range(50)))
    assert answers == [{str(number).encode(): str(number).encode()} for number in range(50)]


async def test_closing_twice_is_harmless(store: Store) -> None:
    await store.put(ALICE, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    await store.close()
    await store.close()


# Whatever is done in whatever order: a store is a dictionary with an hourglass.

Step = tuple[str, bytes, bytes, bytes, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "settle", "wait"]),
        st.sampled_from([ALICE, BOB]),
        st.sampled_from([b"a", b"b"]),
        st.binary(max_size=3),
        st.integers(1, 5),
    ),
    max_size=25,
)


async def follow(store: Store, clock: Clock, steps: list[Step]) -> None:
    model: dict[tuple[bytes, bytes], tuple[bytes, float]] = {}
    for act, tenant, key, value, number in steps:
        live = {name: kept for name, kept in model.items() if kept[1] > clock.now}
        if act == "wait":
            clock.now += number
        elif act == "put":
            await store.put(tenant, Space.COUNTS, {key: value}, ttl=number)
            if live.get((tenant, key), (b"", 0.0))[1] != float("inf"):
                model[tenant, key] = value, clock.now + number
        else:
            kept = live.get((tenant, key), (value, 0.0))[0]
            model[tenant, key] = kept, float("inf")
            assert await store.put_new(tenant, Space.COUNTS, key, value, ttl=None) == kept
        for owner in (ALICE, BOB):
            expected = {k: v for (t, k), (v, end) in model.items() if t == owner and end > clock.now}
            assert await store.get(owner, Space.COUNTS, [b"a", b"b"]) == expected


@given(steps=STEPS)
@settings(max_examples=100, deadline=None)
def test_the_memory_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    clock = Clock()
    asyncio.run(follow(MemoryStore(clock=clock), clock, steps))


@given(steps=STEPS)
@settings(max_examples=40, deadline=None)
def test_the_sqlite_store_is_a_dictionary_with_an_hourglass(steps: list[Step]) -> None:
    async def with_a_file(folder: str) -> None:
        clock = Clock()
        store = await SqliteStore.open(Path(folder) / "state.db", clock=clock)
        try:
            await follow(store, clock, steps)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(with_a_file(folder))
