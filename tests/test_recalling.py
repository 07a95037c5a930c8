"""What others know of a request is asked for once, all together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from proxy import recalling
from proxy.folds import Folds
from proxy.going_on import Forms, Plain
from proxy.hearsay import Hearsay
from proxy.ports import Space, Store
from proxy.recalling import Recalling
from proxy.store.memory import MemoryStore
from proxy.windows.kept import Kept
from tests.counting.peers import ALICE, asked
from tests.desk import MONTH, Desk, called, desk, said

LONG = [f"turn {number}" for number in range(9)]


class Trips(MemoryStore):
    """A store that is far away: whoever asks while others do goes with them."""

    def __init__(self) -> None:
        super().__init__()
        self.trips: list[set[Space]] = []
        self._asked: set[Space] = set()

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._leave)
        self._asked.add(space)
        await asyncio.sleep(0)
        return await super().get(tenant, space, keys)

    def _leave(self) -> None:
        self.trips.append(self._asked)
        self._asked = set()


def room(one: Desk, store: Store, *, on_prefix: bool = False) -> Recalling:
    folds = Folds(store, one.writer, ttl=lambda: MONTH)
    forms = Forms(Kept(Plain, "http://one/v1", b"plain", one.writer))
    hearsay = Hearsay(one.writer, ttl=lambda: MONTH)
    return Recalling(one.sizing, one.lanes, hearsay, folds, forms, on_prefix=on_prefix)


async def recalled(one: Desk, store: Store, *texts: str, mode: str = "compress") -> bool:
    chat = asked(said(*texts))
    split = await one.sizing.split(ALICE, chat)
    assert split is not None
    told = await one.histories.told(ALICE, split.parts)
    return await room(one, store).recall(ALICE, called("c"), chat, split, told, mode)


async def test_all_that_a_conversation_of_others_may_need_is_asked_for_in_one_trip() -> None:
    store = Trips()
    async with desk(store) as one:
        assert await recalled(one, store, *LONG)
        assert store.trips == [
            {Space.COUNTS, Space.ANCHORS, Space.CALIBRATIONS, Space.WINDOWS, Space.LANES, Space.FOLDS}
        ]


async def test_a_conversation_that_goes_on_here_asks_for_the_counts_of_what_is_new() -> None:
    store = Trips()
    async with desk(store) as one:
        request = await one.request(said(*LONG))
        assert request.line is not None
        assert request.found is not None
        lane = msgspec.structs.replace(request.found.lane, length=request.line.length)
        one.lanes.keep(ALICE, request.conversation, request.line, lane)
        store.trips.clear()
        await recalled(one, store, *LONG, "answer", "and a question")
        assert len(store.trips) == 1
        assert Space.COUNTS in store.trips[0]
        assert Space.FOLDS not in store.trips[0]


@pytest.mark.parametrize(("mode", "spaces"), [("observe", {Space.LANES}), ("off", set())])
async def test_what_is_not_folded_asks_for_no_folds(mode: str, spaces: set[Space]) -> None:
    store = Trips()
    async with desk(store) as one:
        assert not await recalled(one, store, *LONG, mode=mode)
        assert store.trips[0] & {Space.LANES, Space.FOLDS} == spaces


async def test_a_first_request_has_no_folds() -> None:
    store = Trips()
    async with desk(store) as one:
        assert not await recalled(one, store, "hello")
        assert not store.trips[0] & {Space.LANES, Space.FOLDS}


def test_no_store_is_waited_for_as_long_as_a_client_waits() -> None:
    assert recalling.LONGEST < 10
