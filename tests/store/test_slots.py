from __future__ import annotations

import tracemalloc

from proxy.ports import Space
from proxy.store.memory import MemoryStore
from proxy.store.slots import Slot, footprint


def test_a_footprint_grows_with_key_and_value() -> None:
    small, large = Slot(b"t", Space.COUNTS, b"k"), Slot(b"t", Space.COUNTS, b"k" * 11)
    assert footprint(large, b"v" * 21) - footprint(small, b"v") == 30


async def test_a_full_memory_store_takes_no_more_memory_than_it_was_given() -> None:
    most_bytes = 2 * 1024**2
    tracemalloc.start()
    try:
        store = MemoryStore(most_bytes)
        for number in range(10_000):
            await store.put(b"t" * 32, Space.COUNTS, {number.to_bytes(32, "big"): bytes(number % 50)}, ttl=60)
        assert most_bytes / 2 < tracemalloc.get_traced_memory()[0] < most_bytes * 1.05
    finally:
        tracemalloc.stop()
