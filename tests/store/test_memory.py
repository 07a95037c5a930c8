from __future__ import annotations

from proxy.ports import NOBODY, Space
from proxy.store.memory import MemoryStore
from tests.store.doubles import FOREVER

KIB = bytes(1024)


async def put(store: MemoryStore, *keys: bytes, value: bytes = KIB) -> None:
    await store.put(NOBODY, Space.COUNTS, dict.fromkeys(keys, value), ttl=FOREVER)


async def put_message(store: MemoryStore, key: bytes, size: int = 1024) -> None:
    await store.put(NOBODY, Space.MESSAGES, {key: bytes(size)}, ttl=FOREVER)


async def messages(store: MemoryStore, *keys: bytes) -> set[bytes]:
    return set(await store.get(NOBODY, Space.MESSAGES, keys))


async def kept(store: MemoryStore, *keys: bytes) -> set[bytes]:
    return set(await store.get(NOBODY, Space.COUNTS, keys))


async def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    store = MemoryStore(most_bytes=3 * 1500)
    await put(store, b"a", b"b", b"c")
    await kept(store, b"a")
    await put(store, b"d")
    assert await kept(store, b"a", b"b", b"c", b"d") == {b"a", b"c", b"d"}


async def test_replacing_a_value_does_not_count_it_twice() -> None:
    store = MemoryStore(most_bytes=3 * 1500)
    await put(store, b"a", b"b")
    for _ in range(100):
        await put(store, b"c")
    assert await kept(store, b"a", b"b", b"c") == {b"a", b"b", b"c"}


async def test_a_value_too_large_to_be_kept_pushes_nothing_out() -> None:
    store = MemoryStore(most_bytes=3 * 1500)
    await put(store, b"a", b"b")
    await put(store, b"b", b"huge", value=bytes(10_000))
    assert await kept(store, b"a", b"b", b"huge") == {b"a"}  # an old value of b would be a wrong one


async def test_what_is_kept_for_good_is_never_pushed_out() -> None:
    store = MemoryStore(most_bytes=3 * 1500)
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None)
    for number in range(100):
        await put(store, str(number).encode())
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"first"


async def test_messages_push_out_older_messages_and_nothing_else() -> None:
    store = MemoryStore(most_bytes=4 * 1500)
    await put(store, b"a", b"b")
    for number in range(10):
        await put_message(store, str(number).encode())
    assert await kept(store, b"a", b"b") == {b"a", b"b"}
    assert await messages(store, b"7", b"8", b"9") == {b"8", b"9"}


async def test_messages_keep_their_half_of_a_full_store() -> None:
    store = MemoryStore(most_bytes=4 * 1500)
    await put_message(store, b"1")
    await put_message(store, b"2")
    await put(store, b"a", b"b", b"c", b"d")
    assert await messages(store, b"1", b"2") == {b"1", b"2"}
    assert await kept(store, b"a", b"b", b"c", b"d") == {b"c", b"d"}


async def test_messages_may_fill_what_nothing_else_needs() -> None:
    store = MemoryStore(most_bytes=4 * 1500)
    for number in range(4):
        await put_message(store, str(number).encode())
    assert len(await messages(store, b"0", b"1", b"2", b"3")) == 4


async def test_a_winner_too_large_to_be_kept_is_told_and_pushes_nothing_out() -> None:
    store = MemoryStore(most_bytes=3 * 1500)
    await put(store, b"a")
    huge = bytes(10_000)
    assert await store.put_new(NOBODY, Space.COUNTS, b"huge", huge, ttl=FOREVER) == huge
    assert await kept(store, b"a", b"huge") == {b"a"}
