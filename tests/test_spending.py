"""What summaries cost is bounded for each caller and day."""

from __future__ import annotations

import msgspec
import pytest

from proxy.ports import Space
from proxy.spending import Spending
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks

ALICE, BOB = b"a" * 16, b"b" * 16
DAY = 24 * 3600.0


def spending(
    store: MemoryStore, most: int | None = 100, now: list[float] | None = None
) -> tuple[Spending, LateWriter]:
    clock = now or [0.0]
    writer = LateWriter(store, Tasks())
    return Spending(writer, most, clock=lambda: clock[0]), writer


async def test_it_is_spent_when_as_much_was_spent_as_may_be() -> None:
    one, writer = spending(MemoryStore())
    assert not one.is_spent(ALICE)
    one.spend(ALICE, 60)
    assert not one.is_spent(ALICE)
    one.spend(ALICE, 40)
    assert one.is_spent(ALICE)
    assert not one.is_spent(BOB)
    await writer.drain(60)


async def test_another_day_begins_anew() -> None:
    now = [0.5 * DAY]
    one, writer = spending(MemoryStore(), now=now)
    one.spend(ALICE, 200)
    assert one.is_spent(ALICE)
    now[0] = DAY
    assert not one.is_spent(ALICE)
    one.spend(ALICE, 99)
    assert not one.is_spent(ALICE)
    await writer.drain(60)


async def test_without_a_bound_nothing_is_ever_spent() -> None:
    one, writer = spending(MemoryStore(), None)
    await one.recall(ALICE)
    one.spend(ALICE, 10**9)
    assert not one.is_spent(ALICE)
    await writer.drain(60)


async def test_a_process_goes_on_from_what_was_spent_before_it() -> None:
    store = MemoryStore()
    one, writer = spending(store)
    one.spend(ALICE, 60)
    await writer.drain(60)
    later, writer = spending(store)
    await later.recall(ALICE)
    later.spend(ALICE, 40)
    assert later.is_spent(ALICE)
    await writer.drain(60)
    third, _ = spending(store, now=[DAY])
    await third.recall(ALICE)
    assert not third.is_spent(ALICE)


async def test_what_is_known_is_not_looked_up_again() -> None:
    store = MemoryStore()
    one, writer = spending(store)
    one.spend(ALICE, 10)
    await writer.drain(60)
    other, writer = spending(store)
    await other.recall(ALICE)
    one.spend(ALICE, 200)
    await writer.drain(60)
    await other.recall(ALICE)
    assert not other.is_spent(ALICE)


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"\xa2\xff\xff", msgspec.msgpack.encode("many")])
async def test_what_is_no_number_is_nothing(junk: bytes) -> None:
    store = MemoryStore()
    await store.put(ALICE, Space.LANES, {b"summary tokens of day 0": junk}, ttl=60)
    one, _ = spending(store)
    await one.recall(ALICE)
    assert not one.is_spent(ALICE)
