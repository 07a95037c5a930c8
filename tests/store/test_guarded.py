from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.ports import NOBODY, Space, Store, StoreUnavailable
from proxy.store.guarded import GuardedStore
from proxy.store.outage import Outage, Reason
from proxy.store.slots import Slot
from proxy.store.sqlite import SqliteStore
from proxy.store.sqlite_file import FileOptions
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE, Clock, Gated, Switched

URL = "redis://user:hunter2@store:6379"


class Guarding:
    """A guard before a store that can be broken, with everything that is to be seen of it."""

    def __init__(self) -> None:
        self.primary = Switched()
        self.clock = Clock()
        self.tasks = Tasks()
        self.outages: list[str] = []
        self.overruled: list[tuple[Slot, bytes]] = []
        self.opened = 0
        self.store = GuardedStore(
            self.open,
            self.tasks,
            url=URL,
            on_outage=self.outages.append,
            on_overruled=lambda slot, theirs: self.overruled.append((slot, theirs)),
            time_limit=PATIENCE,
            clock=self.clock,
        )

    async def open(self) -> Store:
        self.opened += 1
        return self.primary

    async def put(self, key: bytes, value: bytes) -> None:
        await self.store.put(NOBODY, Space.COUNTS, {key: value}, ttl=FOREVER)

    async def get(self, key: bytes) -> bytes | None:
        return (await self.store.get(NOBODY, Space.COUNTS, [key])).get(key)

    async def settle(self, value: bytes) -> bytes:
        return await self.store.put_new(NOBODY, Space.SERVER, b"secret", value, ttl=None)

    async def fold(self, value: bytes) -> bytes:
        return await self.store.put_new(NOBODY, Space.FOLDS, b"prefix", value, ttl=FOREVER)

    async def folded(self, store: Store | None = None) -> bytes | None:
        return (await (store or self.store).get(NOBODY, Space.FOLDS, [b"prefix"])).get(b"prefix")

    async def after_the_pause(self) -> None:
        """The next who asks starts another try in the background; wait until that is done."""
        self.clock.now += 30
        await self.get(b"anything")
        await self.tasks.close(timeout=PATIENCE)

    def fail(self, reason: Reason = "locked") -> None:
        self.primary.trouble = Outage(reason, "as it happens")


@pytest.fixture
async def guarding() -> AsyncIterator[Guarding]:
    made = Guarding()
    yield made
    await made.store.close()
    await made.tasks.close(timeout=PATIENCE)


def levels(lines: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [line["log_level"] for line in lines]


async def test_the_primary_is_used_while_it_answers(guarding: Guarding) -> None:
    await guarding.put(b"k", b"1")
    assert await guarding.primary.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"1"}
    assert guarding.outages == []


async def test_nothing_is_opened_before_somebody_asks_and_then_once(guarding: Guarding) -> None:
    assert guarding.opened == 0
    await asyncio.gather(*(guarding.get(b"k") for _ in range(20)))
    assert guarding.opened == 1


@pytest.mark.parametrize("reason", ["locked", "full", "readonly", "corrupt", "newer", "unavailable"])
async def test_an_outage_is_told_once_and_counted_once(guarding: Guarding, reason: Reason) -> None:
    with capture_logs() as lines:
        await guarding.put(b"k", b"private value")
        guarding.fail(reason)
        await asyncio.gather(*(guarding.put(b"k", b"private value") for _ in range(10)))
        for _ in range(3):
            await guarding.after_the_pause()  # tries that fail say nothing new
    assert [(line["log_level"], line["reason"]) for line in lines] == [("warning", reason)]
    assert guarding.outages == [reason]
    assert "hunter2" not in str(lines)
    assert "private" not in str(lines)


async def test_during_an_outage_what_is_written_can_be_read(guarding: Guarding) -> None:
    await guarding.put(b"before", b"1")
    guarding.fail()
    await guarding.put(b"during", b"2")
    assert await guarding.get(b"during") == b"2"
    assert await guarding.get(b"before") is None


async def test_a_broken_primary_is_left_alone_until_the_pause_is_over(guarding: Guarding) -> None:
    await guarding.get(b"k")
    guarding.fail()
    await guarding.get(b"k")
    asked, opened = guarding.primary.asked, guarding.opened
    guarding.clock.now += 29.9
    for _ in range(10):
        await guarding.get(b"k")
    assert (guarding.primary.asked, guarding.opened) == (asked, opened)
    guarding.clock.now += 0.1
    await guarding.get(b"k")
    await guarding.tasks.close(timeout=PATIENCE)
    assert guarding.opened == opened + 1


async def test_it_comes_back_by_itself_and_says_so_once(guarding: Guarding) -> None:
    await guarding.put(b"k", b"1")
    guarding.fail()
    with capture_logs() as lines:
        await guarding.get(b"k")
        guarding.primary.trouble = None
        await guarding.after_the_pause()
        for _ in range(3):
            assert await guarding.get(b"k") == b"1"
    assert levels(lines) == ["warning", "info"]
    assert guarding.primary.closed == 1  # the connection that had failed


async def test_a_second_outage_is_told_again(guarding: Guarding) -> None:
    for _ in range(2):
        guarding.primary.trouble = None
        await guarding.after_the_pause()
        guarding.fail("full")
        await guarding.get(b"k")
    assert guarding.outages == ["full", "full"]


async def test_a_store_that_can_only_be_read_is_not_back(guarding: Guarding) -> None:
    class OnlyRead(Switched):
        async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
            return {}

    guarding.primary = OnlyRead()
    guarding.fail("full")
    with capture_logs() as lines:
        for _ in range(3):
            await guarding.after_the_pause()
    assert levels(lines) == ["warning"]


async def test_a_secret_settled_during_an_outage_holds_and_reaches_the_primary(guarding: Guarding) -> None:
    guarding.fail()
    assert await guarding.settle(b"ours") == b"ours"
    guarding.primary.trouble = None
    await guarding.after_the_pause()
    assert await guarding.settle(b"another") == b"ours"
    assert await guarding.primary.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"ours"}
    assert guarding.overruled == []


async def test_a_secret_settled_during_an_outage_gives_way_to_the_one_that_the_primary_has(
    guarding: Guarding,
) -> None:
    await guarding.primary.put_new(NOBODY, Space.SERVER, b"secret", b"theirs", ttl=None)
    guarding.fail()
    assert await guarding.settle(b"ours") == b"ours"
    guarding.primary.trouble = None
    for _ in range(2):  # through another outage as well
        await guarding.after_the_pause()
        assert await guarding.settle(b"another") == b"theirs"
        guarding.fail()
        assert await guarding.settle(b"another") == b"theirs"
        guarding.primary.trouble = None
    assert guarding.overruled == [(Slot(NOBODY, Space.SERVER, b"secret"), b"theirs")]


async def test_of_two_processes_that_start_in_an_outage_both_come_to_the_secret_of_the_first(
    guarding: Guarding,
) -> None:
    guarding.fail()
    await guarding.settle(b"ours")
    tasks, overruled, clock = Tasks(), list[bytes](), Clock()
    other = GuardedStore(
        guarding.open, tasks, url=URL, on_overruled=lambda _, theirs: overruled.append(theirs), clock=clock
    )
    assert await other.put_new(NOBODY, Space.SERVER, b"secret", b"the other's", ttl=None) == b"the other's"
    guarding.primary.trouble = None
    await guarding.after_the_pause()
    clock.now += 30
    await other.get(NOBODY, Space.COUNTS, [b"anything"])
    await tasks.close(timeout=PATIENCE)
    assert (guarding.overruled, overruled) == ([], [b"ours"])
    await other.close()


async def test_a_secret_of_the_primary_holds_during_an_outage(guarding: Guarding) -> None:
    assert await guarding.settle(b"ours") == b"ours"
    guarding.fail()
    await guarding.get(b"k")
    assert await guarding.settle(b"another") == b"ours"


async def test_a_secret_reaches_a_fresh_file_that_was_begun_in_place_of_a_corrupt_one(
    guarding: Guarding,
) -> None:
    await guarding.settle(b"ours")
    guarding.fail("corrupt")
    await guarding.get(b"k")
    guarding.primary = Switched()
    await guarding.after_the_pause()
    assert await guarding.primary.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"ours"}


async def test_a_fold_made_during_an_outage_holds_and_reaches_the_primary(guarding: Guarding) -> None:
    guarding.fail()
    assert await guarding.fold(b"ours") == b"ours"
    guarding.primary.trouble = None
    await guarding.after_the_pause()
    assert await guarding.folded(guarding.primary) == b"ours"
    assert await guarding.folded() == b"ours"
    assert await guarding.fold(b"another") == b"ours"


async def test_a_fold_made_during_an_outage_holds_until_the_primary_is_back_with_another(
    guarding: Guarding,
) -> None:
    await guarding.primary.put_new(NOBODY, Space.FOLDS, b"prefix", b"theirs", ttl=FOREVER)
    guarding.fail()
    assert await guarding.fold(b"ours") == b"ours"
    assert await guarding.folded() == b"ours"
    guarding.primary.trouble = None
    await guarding.after_the_pause()
    assert await guarding.folded() == b"theirs"
    assert await guarding.fold(b"another") == b"theirs"
    guarding.fail()
    assert await guarding.folded() == b"theirs"


async def test_a_fold_of_the_primary_holds_during_an_outage(guarding: Guarding) -> None:
    await guarding.fold(b"ours")
    guarding.fail()
    assert await guarding.folded() == b"ours"
    assert await guarding.fold(b"another") == b"ours"


async def test_a_fold_that_was_only_read_is_still_known_during_an_outage(guarding: Guarding) -> None:
    await guarding.primary.put_new(NOBODY, Space.FOLDS, b"prefix", b"theirs", ttl=FOREVER)
    assert await guarding.folded() == b"theirs"
    guarding.fail()
    assert await guarding.folded() == b"theirs"
    assert await guarding.fold(b"another") == b"theirs"


async def test_what_another_process_has_deleted_is_gone_though_it_was_used_here(guarding: Guarding) -> None:
    await guarding.fold(b"ours")
    await guarding.primary.delete(NOBODY, Space.FOLDS, [b"prefix"])
    assert await guarding.folded() is None
    assert await guarding.fold(b"new") == b"new"
    guarding.fail()
    assert await guarding.folded() == b"new"


async def test_what_cannot_be_deleted_in_the_primary_is_gone_here_and_told(guarding: Guarding) -> None:
    await guarding.fold(b"ours")
    guarding.fail()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await guarding.store.delete(NOBODY, Space.FOLDS, [b"prefix"])
    assert await guarding.folded() is None
    guarding.primary.trouble = None
    await guarding.after_the_pause()
    assert await guarding.folded() == b"ours"
    await guarding.store.delete(NOBODY, Space.FOLDS, [b"prefix"])
    assert await guarding.folded() is None


async def test_during_an_outage_claims_are_made_among_those_in_this_process(guarding: Guarding) -> None:
    await guarding.primary.claim(NOBODY, b"work", b"another process", ttl=FOREVER)
    assert not await guarding.store.claim(NOBODY, b"work", b"one", ttl=FOREVER)
    guarding.fail()
    assert await guarding.store.claim(NOBODY, b"work", b"one", ttl=FOREVER)
    assert not await guarding.store.claim(NOBODY, b"work", b"two", ttl=FOREVER)
    await guarding.store.release(NOBODY, b"work", b"one")
    assert await guarding.store.claim(NOBODY, b"work", b"two", ttl=FOREVER)


class Frozen(Switched):
    """A disk that has stopped to answer."""

    frozen = False

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if self.frozen:
            await asyncio.Event().wait()
        return await super().get(tenant, space, keys)


async def test_a_frozen_primary_does_not_hold_a_request() -> None:
    primary, tasks, outages = Frozen(), Tasks(), list[str]()

    async def opened() -> Store:
        return primary

    store = GuardedStore(opened, tasks, url=URL, on_outage=outages.append, time_limit=0.05)
    await store.put(NOBODY, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    primary.frozen = True
    assert await store.get(NOBODY, Space.COUNTS, [b"k"]) == {}
    assert outages == ["unavailable"]
    await store.close()
    await tasks.close(timeout=PATIENCE)


async def test_a_large_value_has_more_time_than_a_small_one() -> None:
    primary, tasks = Gated(), Tasks()
    primary.gate.set()

    async def opened() -> Store:
        return primary

    store = GuardedStore(opened, tasks, url=URL, time_limit=0.05)
    await store.get(NOBODY, Space.COUNTS, [b"k"])
    primary.gate.clear()
    with capture_logs() as lines:
        await store.put(NOBODY, Space.MESSAGES, {b"k": bytes(1024**2)}, ttl=FOREVER)
    assert [line["problem"] for line in lines] == ["no answer within 0.175 s"]
    await store.close()
    await tasks.close(timeout=PATIENCE)


async def test_an_opening_that_takes_long_goes_on_while_requests_are_answered() -> None:
    gate, tasks, outages, primary = asyncio.Event(), Tasks(), list[str](), Switched()

    async def opened() -> Store:
        await gate.wait()
        return primary

    store = GuardedStore(opened, tasks, url=URL, on_outage=outages.append, time_limit=0.05)
    with capture_logs() as lines:
        assert await store.get(NOBODY, Space.COUNTS, [b"k"]) == {}
        gate.set()
        await tasks.close(timeout=PATIENCE)
    await store.put(NOBODY, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    assert await primary.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"1"}
    assert levels(lines) == ["warning", "info"]
    await store.close()


async def test_a_caller_who_leaves_does_not_stop_the_opening() -> None:
    gate, tasks, primary = asyncio.Event(), Tasks(), Switched()

    async def opened() -> Store:
        await gate.wait()
        return primary

    store = GuardedStore(opened, tasks, url=URL, time_limit=PATIENCE)
    leaving = asyncio.ensure_future(store.get(NOBODY, Space.COUNTS, [b"k"]))
    await asyncio.sleep(0)
    leaving.cancel()
    gate.set()
    await store.put(NOBODY, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    assert await primary.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"1"}
    await store.close()


async def test_a_closed_guard_opens_nothing_again(guarding: Guarding) -> None:
    await guarding.get(b"k")
    await guarding.store.close()
    guarding.clock.now += 1000
    assert await guarding.get(b"k") is None
    assert guarding.opened == 1


# With a real file behind it.


async def test_a_file_that_was_locked_is_used_again_afterwards(tmp_path: Path) -> None:
    path, clock, tasks, outages = tmp_path / "state.db", Clock(), Tasks(), list[str]()

    async def opened() -> Store:
        return await SqliteStore.open(path, FileOptions(busy_timeout=0.01))

    store = GuardedStore(
        opened, tasks, url="sqlite:///state.db", on_outage=outages.append, time_limit=PATIENCE, clock=clock
    )
    await store.put(NOBODY, Space.COUNTS, {b"k": b"before"}, ttl=FOREVER)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await store.put(NOBODY, Space.COUNTS, {b"k": b"during"}, ttl=FOREVER)
        assert await store.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"during"}
    clock.now += 30
    await store.get(NOBODY, Space.COUNTS, [b"k"])
    await tasks.close(timeout=PATIENCE)
    assert await store.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"before"}
    assert outages == ["locked"]
    await store.close()


class Slow:
    """A store whose opening takes until it is let through."""

    def __init__(self) -> None:
        self.primary = Switched()
        self.gate = asyncio.Event()
        self.outages: list[str] = []
        self.tasks = Tasks()
        self.store = GuardedStore(
            self.open, self.tasks, url=URL, on_outage=self.outages.append, time_limit=PATIENCE
        )

    async def open(self) -> Store:
        await self.gate.wait()
        return self.primary


async def test_the_start_waits_until_the_store_is_open() -> None:
    slow = Slow()
    starting = asyncio.ensure_future(slow.store.begin(PATIENCE))
    await asyncio.sleep(0)
    assert not starting.done()
    slow.gate.set()
    await starting
    asked = slow.primary.asked
    await slow.store.get(NOBODY, Space.COUNTS, [b"k"])
    assert (slow.primary.asked, slow.outages) == (asked + 1, [])
    await slow.store.close()


async def test_a_store_that_is_not_open_by_then_is_no_outage_and_goes_on_opening() -> None:
    slow = Slow()
    await slow.store.begin(0)
    assert slow.outages == []
    slow.gate.set()
    await slow.store.put(NOBODY, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    assert await slow.primary.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"1"}
    await slow.store.close()
