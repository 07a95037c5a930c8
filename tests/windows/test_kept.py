from __future__ import annotations

import asyncio

import msgspec

from proxy.ports import NOBODY, Space
from proxy.store.memory import MemoryStore
from proxy.store.writing import KEPT, LateWriter
from proxy.tasks import Tasks
from proxy.windows.kept import READ_AGAIN_AFTER, Kept
from tests.store.doubles import PATIENCE, Clock, Switched

UPSTREAM = "http://upstream.example/v1"


class Fact(msgspec.Struct, frozen=True, array_like=True):
    number: int


class Worker:
    """A process of its own as far as memory goes, with the store that all share."""

    def __init__(
        self, store: MemoryStore, clock: Clock, upstream: str = UPSTREAM, kind: bytes = b"k"
    ) -> None:
        self.writer = LateWriter(store, Tasks())
        self.kept = Kept(Fact, upstream, kind, self.writer, clock)

    async def put(self, model: str, number: int) -> None:
        self.kept.put(model, Fact(number))
        await self.writer.drain(PATIENCE)

    async def knows(self, model: str) -> int | None:
        await asyncio.gather(*self.kept.recalling(model))
        fact = self.kept.get(model)
        return fact.number if fact is not None else None


async def test_what_one_life_has_put_the_next_one_recalls() -> None:
    store, clock = Switched(), Clock()
    await Worker(store, clock).put("m", 7)
    assert await Worker(store, clock).knows("m") == 7


async def test_nothing_is_known_before_it_is_recalled() -> None:
    store, clock = Switched(), Clock()
    await Worker(store, clock).put("m", 7)
    assert Worker(store, clock).kept.get("m") is None


async def test_models_upstreams_and_kinds_are_told_apart() -> None:
    store, clock = Switched(), Clock()
    await Worker(store, clock).put("m", 7)
    assert await Worker(store, clock).knows("another") is None
    assert await Worker(store, clock, upstream="http://another.example/v1").knows("m") is None
    assert await Worker(store, clock, kind=b"another").knows("m") is None


async def test_the_store_is_asked_once_and_again_after_a_while() -> None:
    store, clock = Switched(), Clock()
    worker = Worker(store, clock)
    for _ in range(10):
        await worker.knows("m")
    assert store.asked == 1
    clock.now += READ_AGAIN_AFTER
    for _ in range(10):
        await worker.knows("m")
    assert store.asked == 2


async def test_what_another_worker_learns_arrives_after_a_while() -> None:
    store, clock = Switched(), Clock()
    one, other = Worker(store, clock), Worker(store, clock)
    await one.put("m", 1)
    await other.put("m", 2)
    assert await one.knows("m") == 1
    clock.now += READ_AGAIN_AFTER
    assert await one.knows("m") == 2


async def test_a_clock_that_was_set_back_does_not_stop_the_reading() -> None:
    store, clock = Switched(), Clock()
    one, other = Worker(store, clock), Worker(store, clock)
    await one.put("m", 1)
    await other.put("m", 2)
    clock.now -= 1e5
    assert await one.knows("m") == 2


async def test_what_is_put_while_the_store_is_being_read_is_not_lost() -> None:
    clock = Clock()

    class Slow(MemoryStore):
        async def get(self, *asked: object) -> dict[bytes, bytes]:
            worker.kept.put("m", Fact(2))
            return await super().get(*asked)  # type: ignore[arg-type]

    store = Slow()
    await Worker(store, clock).put("m", 1)
    worker = Worker(store, clock)
    assert await worker.knows("m") == 2
    await worker.writer.drain(PATIENCE)


async def test_a_value_of_another_version_is_a_miss_and_written_over() -> None:
    store, clock = Switched(), Clock()
    worker = Worker(store, clock)
    await worker.put("m", 1)
    [key] = store.keys
    for foreign in (b"", b"\xff\xff", msgspec.msgpack.encode({"number": 1}), msgspec.msgpack.encode(["x"])):
        await store.put(NOBODY, Space.WINDOWS, {key: foreign}, ttl=KEPT)
        assert await Worker(store, clock).knows("m") is None
    await worker.put("m", 2)
    assert await Worker(store, clock).knows("m") == 2


async def test_what_the_store_has_lost_is_still_known_to_this_process() -> None:
    store, clock = Switched(), Clock()
    worker = Worker(store, clock)
    await worker.put("m", 1)
    for key in list(store.keys):
        await store.put(NOBODY, Space.WINDOWS, {key: b"lost"}, ttl=KEPT)
    clock.now += READ_AGAIN_AFTER
    assert await worker.knows("m") == 1
