from __future__ import annotations

import pytest

from proxy.ports import NOBODY, Space, StoreUnavailable
from proxy.store.interim import Interim
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.slots import Slot
from tests.store.doubles import FOREVER, Clock, Switched

PREFIX = Slot(NOBODY, Space.FOLDS, b"prefix")
SECRET = Slot(NOBODY, Space.SERVER, b"secret")


class Between:
    """The memory of an outage, and the primary that it tells."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.overruled: list[tuple[Slot, bytes]] = []
        self.interim = Interim(MemoryStore(clock=self.clock), self._overruled)
        self.primary = Switched()

    async def fold(self, value: bytes, key: bytes = b"prefix") -> bytes:
        return await self.interim.put_new(NOBODY, Space.FOLDS, key, value, ttl=FOREVER)

    async def agreed(self, found: dict[bytes, bytes], key: bytes = b"prefix") -> bytes | None:
        return (await self.interim.agreed(NOBODY, Space.FOLDS, [key], found)).get(key)

    async def told(self, key: bytes = b"prefix") -> bytes | None:
        return (await self.primary.get(NOBODY, Space.FOLDS, [key])).get(key)

    def _overruled(self, slot: Slot, theirs: bytes) -> None:
        self.overruled.append((slot, theirs))


@pytest.fixture
def between() -> Between:
    return Between()


async def test_what_the_primary_has_taken_over_is_its_own_from_then_on(between: Between) -> None:
    await between.fold(b"ours")
    assert await between.agreed({}) == b"ours"
    await between.interim.tell(between.primary)
    assert await between.told() == b"ours"
    assert await between.agreed({}) is None  # another process may have deleted it by now
    assert await between.interim.decided(PREFIX, b"theirs", FOREVER) == b"theirs"


async def test_where_the_primary_has_another_winner_ours_gives_way_so_that_all_send_the_same(
    between: Between,
) -> None:
    await between.primary.put_new(*PREFIX, b"theirs", ttl=FOREVER)
    await between.fold(b"ours")
    assert await between.agreed({b"prefix": b"theirs"}) == b"ours"
    await between.interim.tell(between.primary)
    assert await between.agreed({b"prefix": b"theirs"}) == b"theirs"
    assert await between.interim.decided(PREFIX, b"theirs", FOREVER) == b"theirs"
    assert await between.fold(b"in the next outage") == b"theirs"
    assert await between.told() == b"theirs"
    assert between.overruled == []


async def test_of_two_answers_at_once_the_first_holds(between: Between) -> None:
    assert await between.fold(b"from the memory") == b"from the memory"
    assert await between.interim.decided(PREFIX, b"from the primary", FOREVER) == b"from the memory"
    other = PREFIX._replace(key=b"other")
    assert await between.interim.decided(other, b"from the primary", FOREVER) == b"from the primary"
    assert await between.fold(b"from the memory", b"other") == b"from the primary"


async def test_what_is_kept_for_good_is_held_and_told_at_every_opening(between: Between) -> None:
    assert await between.interim.decided(SECRET, b"first", None) == b"first"
    assert await between.interim.decided(SECRET, b"second", None) == b"first"
    for _ in range(2):
        between.primary = Switched()
        await between.interim.tell(between.primary)
        assert await between.primary.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"first"}
    assert between.overruled == []


async def test_what_is_kept_for_good_gives_way_to_the_primary_s_and_that_is_told_once(
    between: Between,
) -> None:
    await between.primary.put_new(*SECRET, b"theirs", ttl=None)
    assert await between.interim.put_new(*SECRET, b"ours", ttl=None) == b"ours"
    for _ in range(2):
        await between.interim.tell(between.primary)
        assert await between.interim.put_new(*SECRET, b"another", ttl=None) == b"theirs"
    assert between.overruled == [(SECRET, b"theirs")]


async def test_what_is_found_while_the_primary_is_being_told_is_told_as_well(between: Between) -> None:
    class Busy(Switched):
        async def put_new(
            self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
        ) -> bytes:
            if key == b"prefix":
                await between.fold(b"meanwhile", b"later")
            return await super().put_new(tenant, space, key, value, ttl=ttl)

    between.primary = Busy()
    await between.fold(b"ours")
    await between.interim.tell(between.primary)
    assert await between.told() == b"ours"
    assert await between.told(b"later") == b"meanwhile"


async def test_a_primary_that_fails_while_it_is_told_is_told_again(between: Between) -> None:
    class FailsAtTheSecond(Switched):
        async def put_new(
            self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
        ) -> bytes:
            if self.asked == 1:
                self.trouble = Outage("full", "as it happens")
            return await super().put_new(tenant, space, key, value, ttl=ttl)

    between.primary = FailsAtTheSecond()
    await between.fold(b"1", b"a")
    await between.fold(b"2", b"b")
    with pytest.raises(StoreUnavailable):
        await between.interim.tell(between.primary)
    between.primary = Switched()
    await between.interim.tell(between.primary)
    assert await between.told(b"b") == b"2"


async def test_a_winner_that_the_memory_has_lost_gives_way_to_the_primary_s(between: Between) -> None:
    await between.fold(b"ours")
    between.clock.now += FOREVER
    assert await between.agreed({b"prefix": b"theirs"}) == b"theirs"
    assert await between.interim.decided(PREFIX, b"theirs", FOREVER) == b"theirs"
    await between.interim.tell(between.primary)
    assert await between.told() is None


async def test_folds_that_were_read_are_at_hand_for_an_hour_and_other_things_are_not(
    between: Between,
) -> None:
    async def at_hand(space: Space) -> dict[bytes, bytes]:
        return await between.interim.get(NOBODY, space, [b"k"])

    for space in (Space.FOLDS, Space.COUNTS):
        await between.interim.agreed(NOBODY, space, [b"k"], {b"k": b"read"})
    assert await at_hand(Space.FOLDS) == {b"k": b"read"}
    assert await at_hand(Space.COUNTS) == {}
    between.clock.now += 3600
    assert await at_hand(Space.FOLDS) == {}


async def test_reading_a_fold_of_our_own_does_not_shorten_its_time(between: Between) -> None:
    await between.fold(b"ours")
    await between.agreed({b"prefix": b"ours"})
    between.clock.now += 3600
    assert await between.agreed({}) == b"ours"


async def test_what_was_deleted_is_neither_held_nor_told(between: Between) -> None:
    await between.fold(b"ours")
    with pytest.raises(StoreUnavailable):
        await between.interim.delete(NOBODY, Space.FOLDS, [b"prefix"])
    assert await between.agreed({}) is None
    await between.interim.tell(between.primary)
    assert await between.told() is None


async def test_in_an_outage_without_end_the_oldest_winners_are_no_longer_held(between: Between) -> None:
    keys = [number.to_bytes(4, "big") for number in range(20_010)]
    for key in keys:
        await between.interim.put_new(NOBODY, Space.FOLDS, key, b"", ttl=FOREVER)
    await between.interim.tell(between.primary)
    assert await between.told(keys[9]) is None
    assert await between.told(keys[10]) == b""
