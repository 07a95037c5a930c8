"""What was said can be read again: every message once, every line from its first turn on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import orjson
import pytest

from proxy.lanes import Lane
from proxy.ports import Space
from proxy.records import PAGE, Records, Spoken, Tip
from proxy.store.memory import MemoryStore
from tests.counting.peers import ALICE, BOB, message
from tests.desk import Desk, called, desk, said

TTL = 1_000.0


class Shelf(MemoryStore):
    """A store that knows what was written: messages, and under which names what is known of lanes."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(clock=lambda: now[0])
        self.messages: list[bytes] = []
        self.lanes: set[bytes] = set()

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        await asyncio.sleep(0)  # as any store that is not in memory: others go on meanwhile
        return await super().get(tenant, space, keys)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        if space is Space.MESSAGES:
            self.messages += values.values()
        if space is Space.LANES:
            self.lanes |= values.keys()
        await super().put(tenant, space, values, ttl=ttl)


@dataclass
class Archive:
    """A process that answers requests and files them."""

    desk: Desk
    records: Records
    now: list[float]

    async def answered(self, messages: object, conversation: str = "c", tenant: bytes = ALICE) -> Tip:
        line = await self.desk.line(messages, tenant)
        found = await self.desk.find(line, conversation, tenant)
        lane = msgspec.structs.replace(found.lane, conversation=conversation)
        lane = self.records.file(tenant, line, lane, found.since)
        self.desk.lanes.keep(tenant, called(conversation), line, lane)
        await self.records.name(tenant, line, lane)
        await self.desk.writer.drain(60)
        return Tip(lane.id, line.home + line.chain[-1], line.length, self.now[0])

    async def texts(self, tip: Tip, tenant: bytes = ALICE) -> list[str]:
        return [orjson.loads(turn.raw or b"null")["content"] for turn in await self.turns(tip, tenant)]

    async def turns(self, tip: Tip, tenant: bytes = ALICE) -> list[Spoken]:
        return await self.records.turns(tenant, tip)


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def shelf(now: list[float]) -> Shelf:
    return Shelf(now)


@asynccontextmanager
async def archive(shelf: Shelf, now: list[float], *, keep_messages: bool = True) -> AsyncIterator[Archive]:
    async with desk(shelf) as one:
        records = Records(one.writer, ttl=lambda: TTL, keep_messages=keep_messages, clock=lambda: now[0])
        yield Archive(one, records, now)


def numbered(count: int) -> list[str]:
    return [f"turn {number}" for number in range(1, count + 1)]


async def test_what_was_said_is_read_with_its_number_its_speaker_and_its_time(
    shelf: Shelf, now: list[float]
) -> None:
    async with archive(shelf, now) as one:
        await one.answered(said("one"))
        now[0] = 200.0
        tip = await one.answered(said("one", "two", "three"))
        turns = await one.turns(tip)
    assert [(turn.number, turn.role, turn.at) for turn in turns] == [
        (1, "user", 100.0),
        (2, "assistant", 200.0),
        (3, "user", 200.0),
    ]
    assert [turn.raw for turn in turns] == [orjson.dumps(each) for each in said("one", "two", "three")]


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE + 3])
@pytest.mark.parametrize("step", [1, 2, 7, 100])
async def test_a_long_line_is_read_from_all_its_pages(
    shelf: Shelf, now: list[float], length: int, step: int
) -> None:
    async with archive(shelf, now) as one:
        ends = [*range(1, length, step), length]
        tips = [await one.answered(said(*numbered(end))) for end in ends]
        for tip, end in zip(tips, ends, strict=True):
            assert await one.texts(tip) == numbered(end)
        assert [turn.number for turn in await one.turns(tips[-1])] == [*range(1, length + 1)]


async def test_every_message_is_written_once(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        for length in (1, 3, 5, 5):
            await one.answered(
                [message("s", "Be brief."), *said("same", "two", "same", "four", "same")[:length]]
            )
        await one.answered([message("s", "Be brief."), *said("another", "two", "same")], "d")
    texts = [orjson.loads(raw)["content"] for raw in shelf.messages]
    assert sorted(texts) == ["Be brief.", "another", "four", "same", "two"]


async def test_instructions_are_kept_too_as_they_stand_now(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        for hour in ("noon", "one"):
            chat = [message("s", f"It is {hour}."), *said("hello"), message("d", "Be brief.")]
            line = await one.desk.line(chat)
            lane = one.records.file(ALICE, line, Lane(id="l", conversation="c", began=0.0), 0)
            await one.desk.writer.drain(60)
            assert [entry.role for entry in lane.instructions] == ["system", "developer"]
            digests = [entry.digest for entry in lane.instructions]
            kept = await shelf.get(ALICE, Space.MESSAGES, digests)
            assert [orjson.loads(kept[digest]) for digest in digests] == [chat[0], chat[2]]
            assert [entry.role for entry in lane.entries] == ["user"]


async def test_a_branch_keeps_what_was_said_in_it(shelf: Shelf, now: list[float]) -> None:
    stem = numbered(PAGE + 3)
    async with archive(shelf, now) as one:
        await one.answered(said(*stem))
        branches = {
            name: await one.answered(said(*stem, *[f"{name} {number}" for number in range(PAGE)]))
            for name in ("left", "right")
        }
        for name, tip in branches.items():
            assert await one.texts(tip) == [*stem, *[f"{name} {number}" for number in range(PAGE)]]


async def test_an_edit_in_an_earlier_page_is_a_line_of_its_own(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        tips = [await one.answered(said(*numbered(length))) for length in range(1, 2 * PAGE + 4, 2)]
        edited = [*numbered(6), "edited"]
        assert await one.texts(await one.answered(said(*edited))) == edited
        assert await one.texts(tips[-1]) == numbered(2 * PAGE + 3)


async def test_what_the_client_has_trimmed_is_read_as_it_sends_it_now(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        await one.answered(said(*numbered(PAGE + 5)))
        trimmed = [*numbered(PAGE + 5)[-3:], "on", "and on"]
        assert await one.texts(await one.answered(said(*trimmed))) == trimmed


async def test_where_messages_are_not_to_be_kept_their_digests_are(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now, keep_messages=False) as one:
        tip = await one.answered([message("s", "Be brief."), *said(*numbered(PAGE + 1))])
        turns = await one.turns(tip)
    assert shelf.messages == []
    assert [(turn.number, turn.raw) for turn in turns] == [(n, None) for n in range(1, PAGE + 2)]
    assert len({turn.digest for turn in turns}) == PAGE + 1


async def test_after_a_restart_it_goes_on(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        await one.answered(said(*numbered(PAGE + 1)))
    now[0] = 300.0
    async with archive(shelf, now) as later:
        tip = await later.answered(said(*numbered(PAGE + 3)))
        turns = await later.turns(tip)
        assert await later.texts(tip) == numbered(PAGE + 3)
        assert [turn.at for turn in turns] == [100.0] * (PAGE + 1) + [300.0] * 2
        assert [each.lane for each in await later.records.lanes(ALICE, "c")] == [tip.lane]


# The lanes of a conversation.


async def test_the_lanes_of_a_conversation_are_listed_the_newest_first(
    shelf: Shelf, now: list[float]
) -> None:
    async with archive(shelf, now) as one:
        tips = []
        for text in ("chat", "a title", "chat"):
            now[0] += 1
            tips.append(await one.answered(said(text)))
        await one.answered(said("elsewhere"), "d")
        assert await one.records.lanes(ALICE, "c") == [tips[2], tips[1]]
        assert tips[0].lane == tips[2].lane
        assert await one.records.lanes(ALICE, "nobody's") == []
        assert await one.records.lanes(BOB, "c") == []


async def test_lanes_that_are_named_at_the_same_time_are_all_there(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        lines = [await one.desk.line(said(f"chat {number}")) for number in range(5)]
        await asyncio.gather(
            *(
                one.records.name(ALICE, line, Lane(id=str(number), conversation="c", began=0.0))
                for number, line in enumerate(lines)
            )
        )
        assert {tip.lane for tip in await one.records.lanes(ALICE, "c")} == {"0", "1", "2", "3", "4"}


async def test_lanes_of_several_workers_are_all_there(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one, archive(shelf, now) as other:
        for number in range(3):
            now[0] += 1
            mine = await one.answered(said(f"mine {number}"))
            theirs = await other.answered(said(f"theirs {number}"))
        tips = await one.records.lanes(ALICE, "c")
    assert {mine.lane, theirs.lane} <= {tip.lane for tip in tips}
    assert len(tips) == 6


# What is not there any more.


async def test_what_has_expired_is_missed_and_the_others_keep_their_numbers(
    shelf: Shelf, now: list[float]
) -> None:
    async with archive(shelf, now) as one:
        await one.answered(said(*numbered(PAGE + 1)))
        now[0] += 0.6 * TTL
        tip = await one.answered(said(*numbered(PAGE + 3)))
        now[0] += 0.6 * TTL
        turns = await one.turns(tip)
    # The first page is gone, and of the turn after it the message.
    assert [turn.number for turn in turns] == [PAGE + 1, PAGE + 2, PAGE + 3]
    assert [turn.raw is None for turn in turns] == [True, False, False]


async def test_a_message_that_is_said_again_is_there_for_as_long_again(
    shelf: Shelf, now: list[float]
) -> None:
    """Such as a new conversation's first words, in a process that runs for longer than the time to live."""
    async with archive(shelf, now) as one:
        for number in range(4):
            tip = await one.answered(said("same", f"and {number}", "same"))
            assert await one.texts(tip) == ["same", f"and {number}", "same"]
            tip = await one.answered(said(f"{number}", "same"))
            assert await one.texts(tip) == [f"{number}", "same"]
            now[0] += 1.5 * TTL


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xc1", msgspec.msgpack.encode([5])])
async def test_what_is_nothing_of_ours_is_missed(shelf: Shelf, now: list[float], junk: bytes) -> None:
    async with archive(shelf, now) as one:
        tip = await one.answered(said(*numbered(PAGE + 1)))
    await shelf.put(ALICE, Space.LANES, dict.fromkeys(shelf.lanes - {tip.key}, junk), ttl=TTL)
    async with archive(shelf, now) as later:
        assert await later.records.lanes(ALICE, "c") == []
        assert [turn.number for turn in await later.turns(tip)] == [PAGE + 1]
        await shelf.put(ALICE, Space.LANES, {tip.key: junk}, ttl=TTL)
        assert await later.turns(tip) == []


async def test_callers_read_nothing_of_each_other(shelf: Shelf, now: list[float]) -> None:
    async with archive(shelf, now) as one:
        tip = await one.answered(said("one"))
        assert await one.turns(tip, BOB) == []
