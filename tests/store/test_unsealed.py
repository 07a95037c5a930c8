"""What a store without keys does where somebody with a key has been."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.ports import Space, Store
from proxy.store.keyring import Keyring
from proxy.store.memory import MemoryStore
from proxy.store.sealed import SealedStore
from proxy.store.unsealed import UnsealedStore
from tests.store.doubles import FOREVER

ALICE = b"alice" * 6


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def with_a_key(inner: MemoryStore) -> Store:
    return SealedStore(inner, Keyring({"k1": b"1" * 32}))


async def get(store: Store, *keys: bytes) -> dict[bytes, bytes]:
    return await store.get(ALICE, Space.FOLDS, keys)


async def put(store: Store, key: bytes, value: bytes) -> None:
    await store.put(ALICE, Space.FOLDS, {key: value}, ttl=FOREVER)


async def test_a_sealed_value_is_a_miss_and_hides_no_other(inner: MemoryStore, with_a_key: Store) -> None:
    store = UnsealedStore(inner)
    await put(with_a_key, b"sealed", b"1")
    await put(store, b"clear", b"2")
    assert await get(store, b"sealed", b"clear", b"absent") == {b"clear": b"2"}


async def test_a_sealed_winner_stays_and_ours_is_for_this_process(
    inner: MemoryStore, with_a_key: Store
) -> None:
    await put(with_a_key, b"k", b"theirs")
    assert await UnsealedStore(inner).put_new(ALICE, Space.FOLDS, b"k", b"ours", ttl=FOREVER) == b"ours"
    assert await get(with_a_key, b"k") == {b"k": b"theirs"}


async def test_one_warning_says_that_what_is_stored_is_in_clear_and_which_setting_is_missing(
    inner: MemoryStore, with_a_key: Store
) -> None:
    store = UnsealedStore(inner)
    await put(with_a_key, b"k", b"theirs")
    with capture_logs() as lines:
        for _ in range(3):
            await get(store, b"k")
            await store.put_new(ALICE, Space.FOLDS, b"k", b"ours", ttl=FOREVER)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "IN CLEAR" in lines[0]["event"]
    assert "encryption.keys" in lines[0]["event"]


async def test_where_nothing_is_sealed_nothing_is_said_and_all_is_as_it_was(inner: MemoryStore) -> None:
    store = UnsealedStore(inner)
    with capture_logs() as lines:
        await put(store, b"k", b"1")
        assert await store.put_new(ALICE, Space.FOLDS, b"k", b"2", ttl=FOREVER) == b"1"
        assert await store.claim(ALICE, b"work", b"one", ttl=9)
        assert not await store.claim(ALICE, b"work", b"two", ttl=9)
        await store.release(ALICE, b"work", b"one")
        assert await store.claim(ALICE, b"work", b"two", ttl=9)
        await store.delete(ALICE, Space.FOLDS, [b"k"])
        assert await get(store, b"k") == {}
        await store.close()
    assert lines == []
