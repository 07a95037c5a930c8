from __future__ import annotations

from structlog.testing import capture_logs

from proxy.callers import Callers
from proxy.ports import NOBODY, Space
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE, Gated, Switched

ALICE, BOB = b"alice", b"bob"


def later(writer: LateWriter, key: bytes, value: bytes, tenant: bytes = NOBODY) -> None:
    writer.later(tenant, Space.COUNTS, {key: value}, ttl=FOREVER)


async def test_what_comes_during_a_write_is_written_together_afterwards() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks())
    later(writer, b"0", b"x")
    await store.entered.wait()
    for number in range(1, 100):
        later(writer, str(number).encode(), b"x")
    store.gate.set()
    await writer.drain(PATIENCE)
    assert [len(values) for values in store.puts] == [1, 99]


async def test_the_last_value_of_a_key_is_the_one_that_stays() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks())
    later(writer, b"k", b"1")
    await store.entered.wait()
    later(writer, b"k", b"2")
    writer.later(NOBODY, Space.COUNTS, {b"k": b"3"}, ttl=1000)  # with another time to live
    store.gate.set()
    await writer.drain(PATIENCE)
    assert store.puts == [{b"k": b"1"}, {b"k": b"3"}]
    assert await store.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"3"}


async def test_reading_sees_what_is_pending_what_is_being_written_and_what_is_stored() -> None:
    store = Gated()
    store.gate.set()
    await store.put(NOBODY, Space.COUNTS, {b"stored": b"1"}, ttl=FOREVER)
    store.gate.clear()
    store.entered.clear()
    writer = LateWriter(store, Tasks())
    later(writer, b"writing", b"2")
    await store.entered.wait()
    later(writer, b"pending", b"3")
    asked = [b"stored", b"writing", b"pending", b"absent"]
    expected = {b"stored": b"1", b"writing": b"2", b"pending": b"3"}
    assert await writer.get(NOBODY, Space.COUNTS, asked) == expected
    assert await writer.get(b"another", Space.COUNTS, asked) == {}
    store.gate.set()
    await writer.drain(PATIENCE)
    assert await store.get(NOBODY, Space.COUNTS, asked) == expected


async def test_of_a_caller_who_was_not_accepted_nothing_is_written_before_that_happens() -> None:
    store, callers, tasks, heard = MemoryStore(), Callers(), Tasks(), list[bytes]()
    writer = LateWriter(store, tasks, callers)
    asked = [b"k", b"new"]
    for tenant in (ALICE, BOB, NOBODY):
        later(writer, b"k", b"1", tenant)
        later(writer, b"k", b"2", tenant)
        writer.settle(tenant, Space.COUNTS, b"new", b"3", ttl=FOREVER, then=heard.append)
    callers.answered(BOB, 401, well=True)
    await writer.drain(PATIENCE)
    assert [writer.writes_for(tenant) for tenant in (ALICE, NOBODY)] == [False, True]
    assert await store.get(ALICE, Space.COUNTS, asked) == {}
    callers.accept(ALICE)
    callers.accept(BOB)
    await tasks.close(PATIENCE)
    assert await store.get(ALICE, Space.COUNTS, asked) == {b"k": b"2", b"new": b"3"}
    assert await store.get(BOB, Space.COUNTS, asked) == {}
    assert heard == [b"3", b"3"]


async def test_each_tenant_s_values_stay_its_own() -> None:
    store = Switched()
    writer = LateWriter(store, Tasks())
    later(writer, b"k", b"a's", tenant=b"a")
    later(writer, b"k", b"b's", tenant=b"b")
    await writer.drain(PATIENCE)
    assert await store.get(b"a", Space.COUNTS, [b"k"]) == {b"k": b"a's"}
    assert await store.get(b"b", Space.COUNTS, [b"k"]) == {b"k": b"b's"}


async def test_what_is_for_several_tenants_or_kinds_is_put_at_once() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks())
    for number in range(40):
        later(writer, b"k", b"x", tenant=bytes([number]))
    await store.entered.wait()
    assert 1 < len(store.puts) < 40  # no store is flooded either
    store.gate.set()
    await writer.drain(PATIENCE)
    assert len(store.puts) == 40


async def test_what_is_put_at_once_is_a_megabyte_at_most() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks())
    for number in range(5):
        later(writer, b"k", bytes(400 * 1024), tenant=bytes([number]))
    await store.entered.wait()
    assert len(store.puts) == 2
    store.gate.set()
    await writer.drain(PATIENCE)
    assert len(store.puts) == 5


async def test_draining_that_runs_out_of_time_says_what_was_left() -> None:
    store, tasks = Gated(), Tasks()
    writer = LateWriter(store, tasks)
    later(writer, b"a", b"1")
    await store.entered.wait()
    later(writer, b"b", b"2")
    with capture_logs() as lines:
        await writer.drain(timeout=0)
    assert [(line["log_level"], line["values"]) for line in lines] == [("warning", 2)]
    await tasks.close(timeout=0)


async def test_draining_with_nothing_to_write_is_silent() -> None:
    with capture_logs() as lines:
        await LateWriter(Switched(), Tasks()).drain(PATIENCE)
    assert lines == []


async def test_what_the_store_refuses_is_dropped_told_once_and_forgotten() -> None:
    store = Switched()
    writer = LateWriter(store, Tasks())
    store.trouble = Outage("full", "as it happens")
    with capture_logs() as lines:
        for number in range(5):
            later(writer, str(number).encode(), b"private")
            await writer.drain(PATIENCE)
        store.trouble = None
        later(writer, b"after", b"1")
        await writer.drain(PATIENCE)
    assert writer.dropped == 5
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "private" not in str(lines)
    assert await writer.get(NOBODY, Space.COUNTS, [b"0", b"after"]) == {b"after": b"1"}


async def test_trouble_after_a_good_time_is_told_again() -> None:
    store = Switched()
    writer = LateWriter(store, Tasks())
    with capture_logs() as lines:
        for trouble in (Outage("full", "once"), None, Outage("full", "again")):
            store.trouble = trouble
            later(writer, b"k", b"1")
            await writer.drain(PATIENCE)
    assert [line["problem"] for line in lines] == ["once", "again"]


async def test_when_too_much_is_pending_the_oldest_goes() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks(), most_bytes=3 * 1500)
    later(writer, b"first", b"")
    await store.entered.wait()
    with capture_logs() as lines:
        for number in range(10):
            later(writer, str(number).encode(), bytes(1024))
    store.gate.set()
    await writer.drain(PATIENCE)
    assert store.puts[1].keys() == {b"7", b"8", b"9"}
    assert writer.dropped == 7
    assert len(lines) == 1


async def test_large_values_are_written_a_megabyte_at_a_time() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks())
    store.gate.set()
    values = {str(number).encode(): bytes(400 * 1024) for number in range(5)}
    writer.later(NOBODY, Space.MESSAGES, values | {b"large": bytes(3 * 1024**2)}, ttl=FOREVER)
    await writer.drain(PATIENCE)
    assert [len(together) for together in store.puts] == [2, 2, 1, 1]
    assert len(await store.get(NOBODY, Space.MESSAGES, [*values, b"large"])) == 6
    assert writer.dropped == 0


async def test_a_value_too_large_to_wait_pushes_nothing_out() -> None:
    store = Gated()
    writer = LateWriter(store, Tasks(), most_bytes=3 * 1500)
    later(writer, b"a", bytes(1024))
    with capture_logs() as lines:
        later(writer, b"huge", bytes(5000))
    store.gate.set()
    await writer.drain(PATIENCE)
    assert await writer.get(NOBODY, Space.COUNTS, [b"a", b"huge"]) == {b"a": bytes(1024)}
    assert writer.dropped == 1
    assert len(lines) == 1
