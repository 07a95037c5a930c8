from __future__ import annotations

import msgspec

from proxy.counting.estimate import Estimate
from proxy.counting.recalling import recalled
from proxy.ports import Space
from proxy.store.outage import Outage
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from tests.counting.peers import ALICE, BOB
from tests.store.doubles import FOREVER, Switched

read = msgspec.msgpack.Decoder(Estimate).decode
write = msgspec.msgpack.encode


async def stored(values: dict[bytes, bytes]) -> tuple[Switched, LateWriter]:
    store = Switched()
    await store.put(ALICE, Space.COUNTS, values, ttl=FOREVER)
    return store, LateWriter(store, Tasks())


async def test_what_was_stored_is_read_back() -> None:
    _, writer = await stored({b"1": write(Estimate(1, 2)), b"2": write(Estimate(3, 4))})
    found = await recalled(writer, ALICE, Space.COUNTS, [b"1", b"2", b"3"], read)
    assert found == {b"1": Estimate(1, 2), b"2": Estimate(3, 4)}
    assert await recalled(writer, BOB, Space.COUNTS, [b"1"], read) == {}


async def test_what_cannot_be_read_is_not_known() -> None:
    other = {b"1": b"", b"2": b"\xff\xff", b"3": write({"fixed": 1}), b"4": write(["text"]), b"5": write([])}
    _, writer = await stored(other | {b"6": write(Estimate(7))})
    found = await recalled(writer, ALICE, Space.COUNTS, [*other, b"6"], read)
    assert found == {b"5": Estimate(), b"6": Estimate(7)}


async def test_a_store_that_is_away_knows_nothing() -> None:
    store, writer = await stored({b"1": write(Estimate(1))})
    store.trouble = Outage("unavailable", "gone")
    assert await recalled(writer, ALICE, Space.COUNTS, [b"1"], read) == {}
