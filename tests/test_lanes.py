"""A line is found again by what it says: as it goes on, branches, is asked again or trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from proxy.conversation import BY_CONTENT, Conversation
from proxy.histories import Line
from proxy.lanes import Lane, Lanes, Relation, lane_from
from proxy.ports import Space
from proxy.prospects import Prospects
from proxy.store.memory import MemoryStore
from tests.counting.peers import ALICE, BOB
from tests.desk import Desk, called, desk, results, said


class Counting(MemoryStore):
    """A store that knows how often it was asked for lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self.asked += space is Space.LANES
        return await super().get(tenant, space, keys)


async def answered(one: Desk, messages: object, conversation: str = "c", tenant: bytes = ALICE) -> Lane:
    """Find the lane of a request, and keep it as it stands after the answer."""
    line = await one.line(messages, tenant)
    found = await one.find(line, conversation, tenant)
    lane = msgspec.structs.replace(found.lane, conversation=conversation, length=line.length)
    one.lanes.keep(tenant, called(conversation), line, lane)
    return lane


async def relation(one: Desk, messages: object, conversation: str = "c") -> tuple[Relation, int, Lane]:
    found = await one.find(await one.line(messages), conversation)
    return found.relation, found.since, found.lane


async def test_the_first_request_begins_a_lane_of_its_own() -> None:
    async with desk() as one:
        how, since, lane = await relation(one, said("hello"))
        assert (how, since, lane.conversation, lane.began, lane.length) == (Relation.NEW, 0, "c", 1.0, 0)
        _, _, other = await relation(one, said("hello"))
    assert lane.id != other.id


async def test_a_conversation_goes_on_from_its_last_request() -> None:
    async with desk() as one:
        first = await answered(one, said("one"))
        second = await answered(one, said("one", "two", "three"))
        assert await relation(one, said("one", "two", "three", "four", "five")) == (
            Relation.CONTINUED,
            3,
            second,
        )
        assert second.id == first.id


async def test_asked_again_or_answered_anew_it_is_repeated() -> None:
    async with desk() as one:
        lane = await answered(one, said("one", "two", "three"))
        assert await relation(one, said("one", "two", "three")) == (Relation.REPEATED, 3, lane)


async def test_instructions_that_change_are_no_other_conversation() -> None:
    async with desk() as one:
        lane = await answered(one, [{"role": "system", "content": "It is noon."}, *said("one")])
        later = [{"role": "system", "content": "It is one."}, *said("one", "two", "three")]
        assert await relation(one, later) == (Relation.CONTINUED, 1, lane)


async def test_an_edit_goes_on_from_where_it_parts() -> None:
    async with desk() as one:
        first = await answered(one, said("one"))
        await answered(one, said("one", "two", "three"))
        last = await answered(one, said("one", "two", "three", "four", "five"))
        how, since, branch = await relation(one, said("one", "two", "other"))
        assert (how, since) == (Relation.BRANCHED, 1)
        assert msgspec.structs.replace(branch, id=first.id) == first
        assert branch.id != first.id
        assert (await relation(one, said("another")))[0] is Relation.NEW
        # And the branch that was left can be taken up again.
        await answered(one, said("one", "two", "other"))
        longer = said("one", "two", "three", "four", "five", "six", "seven")
        assert await relation(one, longer) == (Relation.CONTINUED, 5, last)


async def test_branches_keep_what_is_known_of_each() -> None:
    async with desk() as one:
        await answered(one, said("one"))
        for branch in ("left", "right"):
            line = await one.line(said("one", "two", branch))
            found = await one.find(line)
            lane = msgspec.structs.replace(found.lane, length=line.length, fold=branch)
            one.lanes.keep(ALICE, called("c"), line, lane)
        for branch in ("left", "right"):
            how, since, lane = await relation(one, said("one", "two", branch, "so", "on"))
            assert (how, since, lane.fold) == (Relation.CONTINUED, 3, branch)


async def test_look_alikes_are_told_apart_by_what_they_go_on_with() -> None:
    """Chats under one name that begin alike, with nothing but the last turns to tell them apart."""
    async with desk() as one:
        await answered(one, said("hello"))
        mine = await answered(one, said("hello", "hi", "my question"))
        other = await answered(one, said("hello", "hi", "another"))
        assert (await relation(one, said("hello", "hi", "my question", "a", "b")))[2] == mine
        assert (await relation(one, said("hello", "hi", "another", "a", "b")))[2] == other


async def test_other_conversations_under_one_name_are_new() -> None:
    """Such as the call for a title."""
    async with desk() as one:
        await answered(one, said("one", "two", "three"))
        assert (await relation(one, said("Write a title for: one two three")))[0] is Relation.NEW


def trimmed(lane: Lane, **others: Any) -> Lane:
    """The same line, of whose turns none is known by its beginning."""
    return msgspec.structs.replace(lane, length=0, **others)


@pytest.mark.parametrize(
    "messages",
    [
        said("two", "three", "four", "five", first="assistant"),
        [*said("a summary of the client's own"), *said("two", "three", "four", "five", first="assistant")],
        said("two", "three", first="assistant"),
    ],
)
async def test_what_the_client_has_trimmed_is_known_by_its_last_turns(messages: list[dict[str, Any]]) -> None:
    async with desk() as one:
        lane = await answered(one, said("one", "two", "three"))
        assert await relation(one, messages) == (Relation.TRIMMED, 0, trimmed(lane))
        assert (await relation(one, messages, "another"))[0] is Relation.NEW


async def test_a_line_that_keeps_its_first_turn_is_known_by_its_last_ones_too() -> None:
    async with desk() as one:
        first = await answered(one, said("one"))
        lane = await answered(one, said("one", "two", "three", "four", "five"))
        kept = [*said("one"), *said("four", "five", "six", "seven", first="assistant")]
        how, since, found = await relation(one, kept)
        assert (how, since, found.id) == (Relation.TRIMMED, 1, lane.id)
        assert found.entries == first.entries


async def test_results_that_are_cleared_later_leave_a_line_what_it_is() -> None:
    async with desk() as one:
        talk = [*said("begin"), *results("long"), *results("longer", "longest"), *said("go on")]
        lane = await answered(one, talk)
        cleared = [*said("begin"), *results("[cleared]"), *results("longer", "longest"), *said("go on")]
        assert await relation(one, [*cleared, *said("well", "and on", first="assistant")]) == (
            Relation.TRIMMED,
            0,
            trimmed(lane),
        )


async def test_a_trimmed_history_is_known_where_nobody_gives_it_a_name() -> None:
    """Its name is made of its beginning, which is another one now."""
    nameless = Conversation("content-one", BY_CONTENT)
    async with desk() as one:
        line = await one.line(said("one", "two", "three"))
        lane = msgspec.structs.replace(one.lanes.find(nameless, line).lane, length=3)
        one.lanes.keep(ALICE, nameless, line, lane)
        shorter = await one.line(said("two", "three", "four", "five", first="assistant"))
        found = one.lanes.find(Conversation("content-other", BY_CONTENT), shorter)
        assert (found.relation, found.lane) == (Relation.TRIMMED, trimmed(lane))


async def test_the_same_question_about_something_else_is_another_conversation() -> None:
    """As where a document comes first, and the same words stand behind each."""
    async with desk() as one:
        for document in ("this", "that", "another"):
            nameless = Conversation(f"content-{document}", BY_CONTENT)
            line = await one.line(said(document, "I have read it.", "What does it say?"))
            found = one.lanes.find(nameless, line)
            assert found.relation is Relation.NEW
            one.lanes.keep(ALICE, nameless, line, msgspec.structs.replace(found.lane, length=3))


async def test_another_worker_knows_a_trimmed_line_that_has_folds_to_lose() -> None:
    store = MemoryStore()
    for begun, relation_there in ((b"prefix", Relation.TRIMMED), (None, Relation.NEW)):
        async with desk(store) as one:
            line = await one.line(said(f"one {begun!r}", f"two {begun!r}", "three"))
            prospects = Prospects().began(begun, 99.0) if begun else Prospects()
            lane = msgspec.structs.replace((await one.find(line)).lane, length=3, prospects=prospects)
            one.lanes.keep(ALICE, called("c"), line, lane)
        async with desk(store) as other:
            later = await other.line(said(f"two {begun!r}", "three", "four", "five", first="assistant"))
            found = await other.find(later)
            assert found.relation is relation_there
            assert found.lane.prospects.unused == (1 if begun else 0)


async def test_another_worker_finds_a_lane_in_the_store() -> None:
    store = MemoryStore()
    async with desk(store) as one:
        lane = await answered(one, said("one", "two", "three"))
    async with desk(store) as other:
        assert await relation(other, said("one", "two", "three", "four", "five")) == (
            Relation.CONTINUED,
            3,
            lane,
        )


async def test_the_state_that_another_worker_has_left_is_newer_than_ours() -> None:
    store = MemoryStore()
    async with desk(store) as one, desk(store) as other:
        first = await answered(one, said("one"))
        await one.writer.drain(60)
        second = await answered(other, said("one", "two", "three"))
        await other.writer.drain(60)
        assert await relation(one, said("one", "two", "three", "four", "five")) == (
            Relation.CONTINUED,
            3,
            second,
        )
        assert second.id == first.id


async def test_what_is_in_memory_asks_the_store_nothing() -> None:
    store = Counting()
    async with desk(store) as one:
        texts = [str(number) for number in range(41)]
        for length in range(1, 41, 2):
            await answered(one, said(*texts[:length]))
        # A step of an agent: one answer, however many results.
        await answered(one, [*said(*texts[:39]), *results(*texts)])
        # The same again.
        await answered(one, said(*texts[:39]))
        assert store.asked == 0


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"junk",
        b"\xc1",
        msgspec.msgpack.encode({"id": 5}),
        msgspec.msgpack.encode({"id": "a", "conversation": "c", "began": "never"}),
        b"\x81\xa2id\xa2\xff\xff",
    ],
)
async def test_what_is_not_a_lane_is_a_miss(junk: bytes) -> None:
    store = MemoryStore()
    async with desk() as one:
        line = await one.line(said("one", "two", "three"))
    await store.put(ALICE, Space.LANES, {line.chain[3]: junk}, ttl=60)
    async with desk(store) as one:
        assert (await relation(one, said("one", "two", "three", "four", "five")))[0] is Relation.NEW
        # It does not hide what lies below it.
        lane = await answered(one, said("one"))
        assert await relation(one, said("one", "two", "three")) == (Relation.CONTINUED, 1, lane)
    assert lane_from(junk) is None


@pytest.mark.parametrize("length", [0, 2, 4, 100])
async def test_a_lane_of_another_length_than_its_place_is_a_miss(length: int) -> None:
    store = MemoryStore()
    async with desk() as one:
        line = await one.line(said("one", "two", "three"))
    foreign = Lane(id="foreign", conversation="c", began=0.0, length=length)
    await store.put(ALICE, Space.LANES, {line.chain[3]: msgspec.msgpack.encode(foreign)}, ttl=60)
    async with desk(store) as one:
        assert (await relation(one, said("one", "two", "three", "four", "five")))[0] is Relation.NEW


async def test_callers_find_nothing_of_each_other() -> None:
    store = MemoryStore()
    async with desk(store) as one:
        lane = await answered(one, said("one", "two", "three"))
        longer = said("one", "two", "three", "four", "five")
        theirs = await one.line(longer, BOB)
        for worker in (one.lanes, Lanes(one.writer, ttl=lambda: 60, clock=lambda: 1.0)):
            question = worker.recalling(BOB, called("c"), theirs)
            assert question is not None
            await question
            found = worker.find(called("c"), theirs)
            assert (found.relation, found.since) == (Relation.NEW, 0)
            assert found.lane.id != lane.id


async def test_a_lane_is_kept_as_long_as_it_is_told() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    async with desk(store) as one:
        await answered(one, said("one", "two", "three"))
    now[0] = 29 * 24 * 3600.0
    async with desk(store) as one:
        assert (await relation(one, said("one", "two", "three")))[0] is Relation.REPEATED
    now[0] += 2 * 24 * 3600.0
    async with desk(store) as one:
        assert (await relation(one, said("one", "two", "three")))[0] is Relation.NEW


async def test_where_nobody_has_spoken_there_is_nothing_to_go_on_from() -> None:
    async with desk() as one:
        instructions = [{"role": "system", "content": "Be brief."}]
        await answered(one, instructions)
        line: Line = await one.line(instructions)
        assert line.length == 0
        assert (await relation(one, instructions))[0] is Relation.NEW
        assert (await relation(one, [*instructions, *said("one", "two", "three")]))[0] is Relation.NEW
