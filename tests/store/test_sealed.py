"""What a store does with values that nobody else can read; how they are sealed is `test_keyring`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.ports import NOBODY, Space, Store
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.memory import MemoryStore
from proxy.store.sealed import SealedStore
from tests.store.doubles import FOREVER, Switched

ALICE, BOB = b"alice" * 6, b"bob" * 10
OLD, NEW, OTHER = {"old": b"o" * 32}, {"new": b"n" * 32}, {"other": b"x" * 32}
SEALED_SPACES = [space for space in Space if space is not Space.CLAIMS]


def sealed(inner: Store, *keys: Mapping[str, bytes]) -> SealedStore:
    return SealedStore(inner, Keyring({name: key for each in keys for name, key in each.items()}))


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


async def raw(inner: Store, key: bytes = b"k", tenant: bytes = ALICE, space: Space = Space.FOLDS) -> bytes:
    return (await inner.get(tenant, space, [key]))[key]


async def found(store: Store, key: bytes = b"k", tenant: bytes = ALICE, space: Space = Space.FOLDS) -> object:
    return (await store.get(tenant, space, [key])).get(key)


async def put(store: Store, value: bytes, key: bytes = b"k", space: Space = Space.FOLDS) -> None:
    await store.put(ALICE, space, {key: value}, ttl=FOREVER)


async def put_new(store: Store, value: bytes) -> bytes:
    return await store.put_new(ALICE, Space.FOLDS, b"k", value, ttl=FOREVER)


async def secret(store: Store, value: bytes) -> bytes:
    return await store.put_new(NOBODY, Space.SERVER, b"secret", value, ttl=None)


# Nobody reads, changes or exchanges.


@pytest.mark.parametrize("space", SEALED_SPACES)
async def test_the_store_behind_sees_nothing_of_a_value(inner: MemoryStore, space: Space) -> None:
    store = sealed(inner, OLD)
    await put(store, b"a canary", space=space)
    await store.put_new(ALICE, space, b"new", b"a canary", ttl=FOREVER)
    await store.put_new(ALICE, space, b"for good", b"a canary", ttl=None)
    for key in (b"k", b"new", b"for good"):
        assert b"canary" not in await raw(inner, key, space=space)
        assert await found(store, key, space=space) == b"a canary"


async def test_claims_stay_as_they_are(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    assert await store.claim(ALICE, b"work", b"one", ttl=10)
    assert await raw(inner, b"work", space=Space.CLAIMS) == b"one"
    assert not await sealed(inner, NEW).claim(ALICE, b"work", b"two", ttl=10)


@given(values=st.dictionaries(st.binary(max_size=8), st.binary(max_size=50), max_size=5))
def test_everything_comes_back_as_it_was_put(values: dict[bytes, bytes]) -> None:
    async def there_and_back() -> None:
        store = sealed(MemoryStore(), OLD, NEW)
        for space in Space:
            await store.put(ALICE, space, values, ttl=FOREVER)
            assert await store.get(ALICE, space, [*values]) == values

    asyncio.run(there_and_back())


async def test_every_single_byte_that_is_changed_makes_a_miss(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    await put(store, b"a fold")
    whole = await raw(inner)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        await put(inner, bytes(changed))
        assert await found(store) is None
    await put(inner, whole)
    assert await found(store) == b"a fold"


async def test_a_value_in_anothers_place_is_a_miss(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    await put(store, b"alice's")
    moved = await raw(inner)
    await inner.put(ALICE, Space.FOLDS, {b"other": moved}, ttl=FOREVER)
    await inner.put(ALICE, Space.LANES, {b"k": moved}, ttl=FOREVER)
    await inner.put(BOB, Space.FOLDS, {b"k": moved}, ttl=FOREVER)
    assert await found(store, b"other") is None
    assert await found(store, space=Space.LANES) is None
    assert await found(store, tenant=BOB) is None


async def test_a_miss_among_others_hides_none_of_them(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    await put(store, b"good", b"good")
    await put(inner, b"plain", b"plain")
    assert await store.get(ALICE, Space.FOLDS, [b"good", b"plain", b"absent"]) == {b"good": b"good"}


async def test_values_that_cannot_be_opened_are_complained_of_once_for_each_reason(
    inner: MemoryStore,
) -> None:
    store = sealed(inner, OLD)
    await put(inner, b"plain", b"plain")
    await put(sealed(inner, NEW), b"foreign", b"foreign")
    with capture_logs() as lines:
        for _ in range(3):
            await store.get(ALICE, Space.FOLDS, [b"plain", b"foreign"])
    assert [line["log_level"] for line in lines] == ["warning"] * 2
    assert {line["why"] for line in lines} == {Unreadable.PLAIN.value, Unreadable.FOREIGN.value}


# Who was first.


async def test_the_winner_is_told_opened(inner: MemoryStore) -> None:
    assert await put_new(sealed(inner, OLD), b"first") == b"first"
    assert await put_new(sealed(inner, OLD), b"second") == b"first"
    assert await put_new(sealed(inner, NEW, OLD), b"third") == b"first"


async def test_a_winner_from_before_encryption_gives_way(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    await put_new(inner, b"plain")
    assert await found(store) is None
    assert await put_new(store, b"sealed") == b"sealed"
    assert await put_new(store, b"late") == b"sealed"
    assert b"plain" not in await raw(inner)


@pytest.mark.parametrize("place", [0, -1])
async def test_a_winner_that_was_tampered_with_gives_way(inner: MemoryStore, place: int) -> None:
    store = sealed(inner, OLD)
    await put(store, b"first")
    changed = bytearray(await raw(inner))
    changed[place] ^= 1
    await put(inner, bytes(changed))
    assert await put_new(store, b"second") == b"second"
    assert await found(store) == b"second"


async def test_a_winner_that_was_moved_gives_way(inner: MemoryStore) -> None:
    store = sealed(inner, OLD)
    await put(store, b"another fold", b"elsewhere")
    await put(inner, await raw(inner, b"elsewhere"))
    assert await put_new(store, b"ours") == b"ours"
    assert await found(store) == b"ours"


async def test_a_winner_under_a_key_that_only_others_have_is_left_alone(inner: MemoryStore) -> None:
    assert await put_new(sealed(inner, NEW), b"theirs") == b"theirs"
    before = await raw(inner)
    store = sealed(inner, OLD)
    assert await put_new(store, b"ours") == b"ours"
    assert await found(store) is None
    assert await raw(inner) == before
    assert await put_new(sealed(inner, NEW, OLD), b"late") == b"theirs"


class Slow(Switched):
    """Whoever asks lets another in between."""

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await super().get(tenant, space, keys)
        await asyncio.sleep(0)
        return found

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        await asyncio.sleep(0)
        winner = await super().put_new(tenant, space, key, value, ttl=ttl)
        await asyncio.sleep(0)
        return winner


async def test_of_many_who_find_junk_one_wins() -> None:
    inner = Slow()
    await put(inner, b"junk")
    stores = [sealed(inner, OLD) for _ in range(20)]
    answers = await asyncio.gather(*(put_new(each, b"%d" % number) for number, each in enumerate(stores)))
    assert len({*answers}) == 1
    assert await found(stores[0]) == answers[0]


class Overtaken(MemoryStore):
    """While the first who asks is told of what is there, another is faster."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Coroutine[Any, Any, bytes] | None = None

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        winner = await super().put_new(tenant, space, key, value, ttl=ttl)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile
        return winner


async def test_junk_that_another_has_replaced_by_now_is_not_replaced_again() -> None:
    inner = Overtaken()
    await put(inner, b"junk")
    inner.meanwhile = put_new(sealed(inner, OLD), b"theirs")
    assert await put_new(sealed(inner, OLD), b"ours") == b"theirs"
    assert await found(sealed(inner, OLD)) == b"theirs"


# Rotation.


async def test_rotation_in_three_steps_loses_nothing(inner: MemoryStore) -> None:
    """Two replicas, one of which is always a step behind."""
    steps = [[OLD], [OLD, NEW], [NEW, OLD]]
    for number, (behind, ahead) in enumerate(pairwise(steps)):
        one, other = sealed(inner, *behind), sealed(inner, *ahead)
        for writer, reader in ((one, other), (other, one)):
            key = b"%d" % number
            await put(writer, b"value", key)
            assert await found(reader, key) == b"value"
            assert await reader.put_new(ALICE, Space.FOLDS, key, b"late", ttl=FOREVER) == b"value"
    assert await found(sealed(inner, NEW), b"1") == b"value"
    assert await found(sealed(inner, NEW), b"0") is None


async def test_what_is_written_again_is_sealed_under_the_first_key(inner: MemoryStore) -> None:
    await put(sealed(inner, OLD), b"value")
    await put(sealed(inner, NEW, OLD), b"value")
    assert await found(sealed(inner, NEW)) == b"value"


async def test_the_servers_secret_outlives_any_number_of_rotations(inner: MemoryStore) -> None:
    ring = [OLD, NEW, OTHER]
    assert await secret(sealed(inner, OLD), b"the first") == b"the first"
    for before, after in pairwise(ring):
        assert await secret(sealed(inner, before, after), b"late") == b"the first"
        assert await secret(sealed(inner, after, before), b"late") == b"the first"
        store = sealed(inner, after)
        assert await found(store, b"secret", NOBODY, Space.SERVER) == b"the first"
        with capture_logs() as lines:
            assert await secret(store, b"late") == b"the first"
        assert lines == []


async def test_a_secret_that_cannot_be_opened_is_said_loudly_and_stops_nothing(inner: MemoryStore) -> None:
    await secret(sealed(inner, OLD), b"lost")
    with capture_logs() as lines:
        assert await secret(sealed(inner, NEW), b"another") == b"another"
    assert [line["log_level"] for line in lines if "the server's secret" in line["event"]] == ["warning"]
    assert "lost" not in str(lines)
    with capture_logs() as lines:
        assert await secret(sealed(inner, NEW), b"late") == b"another"
    assert [line for line in lines if "the server's secret" in line["event"]] == []
    assert await secret(sealed(inner, OLD), b"late") == b"lost"  # nothing of it was touched


async def test_a_secret_from_before_encryption_is_replaced_by_the_same_one_for_all_who_start_at_once() -> (
    None
):
    inner = Slow()
    await secret(inner, b"readable by anybody")
    stores = [sealed(inner, OLD) for _ in range(20)]
    answers = await asyncio.gather(*(secret(each, b"%d" % number) for number, each in enumerate(stores)))
    assert len({*answers}) == 1
    assert await secret(sealed(inner, OLD), b"late") == answers[0]
    assert b"readable" not in await raw(inner, b"secret", NOBODY, Space.SERVER)


async def test_of_those_that_start_at_once_none_believes_that_a_secret_was_lost() -> None:
    inner = Slow()

    async def begins(turns_later: int) -> bytes:
        for _ in range(turns_later):
            await asyncio.sleep(0)
        return await secret(sealed(inner, OLD), b"%d" % turns_later)

    with capture_logs() as lines:
        assert {*await asyncio.gather(*map(begins, range(10)))} == {b"0"}
    assert lines == []


async def test_a_secret_that_was_deleted_is_gone_under_every_key(inner: MemoryStore) -> None:
    await secret(sealed(inner, OLD), b"first")
    store = sealed(inner, NEW, OLD)
    await secret(store, b"late")
    await store.delete(NOBODY, Space.SERVER, [b"secret"])
    assert await found(store, b"secret", NOBODY, Space.SERVER) is None
    assert await secret(store, b"second") == b"second"
