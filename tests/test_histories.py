"""What is remembered of a request only saves reading: its history is the one that is built from nothing."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.counting.estimate import Estimate
from proxy.counting.measuring import Limits
from proxy.counting.recollection import Measured
from proxy.fold.history import History, Turn, history
from proxy.fold.identity import said as meant
from proxy.histories import Histories, Line, history_of, last_spoken, line_of, raw_of
from proxy.messages import items, read
from tests.counting.peers import ALICE, BOB, Life, asked, life, message, talk
from tests.desk import results


def tokens(estimate: Estimate) -> float:
    return estimate.plain


def twice(estimate: Estimate) -> float:
    """For instructions, whose size is told by other bills."""
    return 2 * tokens(estimate)


def from_nothing(line: Line, array: bytes, tenant: bytes = ALICE) -> History:
    """Every message read, none of them remembered."""
    turns = []
    raws = items(array)
    assert raws is not None
    for raw, measured in zip(raws, line.measured.messages, strict=True):
        each = meant(raw, tenant)
        size = max(1, round(tokens(measured.estimate)))
        turn = Turn(raw, each.role, each.identity, size, each.calls, each.answers)
        turns.append(Turn(raw, each.role, b"", 2 * size) if turn.instructs else turn)
    return history(turns, tenant)


def is_one(line: Line, array: bytes, tenant: bytes = ALICE) -> None:
    whole, rebuilt = history_of(line, twice, tokens), from_nothing(line, array, tenant)
    assert list(whole.turns) == list(rebuilt.turns)
    assert list(whole.spoken) == list(rebuilt.spoken)
    assert list(whole.chain) == list(rebuilt.chain)
    assert line.length == whole.length


async def line_in(histories: Histories, whole: Measured, tenant: bytes = ALICE) -> Line | None:
    told = await histories.told(tenant, whole)
    return line_of(told, whole) if told is not None else None


async def measured(one: Life, array: bytes, tenant: bytes = ALICE) -> Measured:
    counted = await one.count(tenant, read(b'{"messages":%b}' % array, compressed=False))
    assert counted.measured is not None
    return counted.measured


# A conversation as clients change it from one request to the next.

texts = st.sampled_from(["yes", "größer 😀", ' "]}, {[ ', "", "x" * 300])
spoken = st.builds(lambda letter, text: [message(letter, text)], st.sampled_from("suuaad"), texts)
called = st.lists(texts, min_size=1, max_size=3).map(lambda said: results(*said))
groups = spoken | called
edits = st.tuples(
    st.integers(0, 3), st.sampled_from(["grow", "edit", "leave out", "begin anew"]), st.lists(groups)
)
layouts = st.sampled_from([(",", ":", None), (", ", ": ", None), (",", ": ", 2), (",\t", ":\n", 8)])


def changed(
    before: list[dict[str, Any]], how: str, place: int, added: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    match how:
        case "grow":
            return before + added
        case "edit":
            return before[: len(before) - place] + added
        case "leave out":
            return before[place:] + added
        case _:
            return added


@settings(deadline=None)
@given(st.lists(st.tuples(edits, layouts), min_size=1, max_size=8))
def test_whatever_was_remembered_the_history_is_the_one_built_from_nothing(steps: list[Any]) -> None:
    async def carry_on() -> None:
        conversation: list[dict[str, Any]] = []
        with ThreadPoolExecutor(1) as pool:
            async with life() as one:
                histories = Histories(pool)
                for (place, how, parts), (comma, colon, indent) in steps:
                    added = [each for part in parts for each in part]
                    conversation = changed(conversation, how, place, added)
                    array = json.dumps(conversation, separators=(comma, colon), indent=indent).encode()
                    line = await line_in(histories, await measured(one, array))
                    assert (line is None) == (not conversation)
                    if line is not None:
                        is_one(line, array)

    asyncio.run(carry_on())


@pytest.mark.parametrize(
    "array",
    [
        b'[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]',
        b'[ \n\t{"role":"user","content":"a"}\r\n , \t {"role" : "assistant", "content":"},{"} \n ]',
        b'[{"role":"user","content":"same"},{"role":"user","content":"same"},{"role":"user","content":"same"}]',
    ],
)
async def test_the_bytes_are_the_clients_own_however_it_lays_them_out(array: bytes) -> None:
    with ThreadPoolExecutor(1) as pool:
        async with life() as one:
            line = await line_in(Histories(pool), await measured(one, array))
    assert line is not None
    assert [raw_of(line.measured, place) for place in range(len(line.measured.messages))] == items(array)
    is_one(line, array)


@pytest.mark.parametrize(
    "messages", [[], {}, None, "text", 5, ["text"], [{}, 7], [{}, None, {}], [[{}]], [{}, "}"], {"a": {}}]
)
async def test_messages_that_are_not_objects_have_no_history(messages: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        async with life() as one:
            histories = Histories(pool)
            for chat in (asked(talk("u")), asked(messages)):
                counted = await one.count(ALICE, chat)
                assert counted.measured is not None
                line = await line_in(histories, counted.measured)
    assert line is None


async def test_more_messages_than_are_measured_one_by_one_have_no_history() -> None:
    with ThreadPoolExecutor(1) as pool:
        async with life(limits=Limits(messages=3)) as one:
            histories = Histories(pool)
            assert await line_in(histories, await measured(one, orjson.dumps(talk("u a u")))) is not None
            long = orjson.dumps(talk("u a u a u a u"))
            assert await line_in(histories, await measured(one, long)) is None


async def test_instructions_alone_have_a_history_in_which_nobody_has_spoken() -> None:
    with ThreadPoolExecutor(1) as pool:
        async with life() as one:
            array = orjson.dumps(talk("s d"))
            line = await line_in(Histories(pool), await measured(one, array))
    assert line is not None
    assert (line.length, len(line.chain)) == (0, 1)
    is_one(line, array)


class Reads(ThreadPoolExecutor):
    """A pool that counts what it is given: only what was not read before is worth a thread."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.given += 1
        return super().submit(fn, *args, **kwargs)


async def test_no_message_is_read_twice() -> None:
    large = "word " * 10_000
    with Reads() as pool:
        async with life() as one:
            histories = Histories(pool)
            grown = [message("u", f"1 {large}")]
            reads = []
            for step in [
                [],
                [],
                [message("a", "short")],
                [message("u", f"2 {large}")],
                [message("u", f"1 {large}"), message("u", f"2 {large}")],  # the same again, further on
            ]:
                grown += step
                array = orjson.dumps(grown)
                line = await line_in(histories, await measured(one, array))
                assert line is not None
                is_one(line, array)
                reads.append(pool.given)
            # Another branch, in which nothing is new.
            line = await line_in(histories, await measured(one, orjson.dumps(grown[::-1])))
            assert line is not None
            assert [*reads, pool.given] == [1, 1, 1, 2, 2, 2]


async def test_a_long_history_that_nobody_remembers_is_read_from_its_beginning() -> None:
    """As after an edit further back than is looked for."""
    with ThreadPoolExecutor(1) as pool:
        async with life() as one:
            histories = Histories(pool)
            letters = "s " + "u a " * 100
            await line_in(histories, await measured(one, orjson.dumps(talk(letters))))
            array = orjson.dumps([*talk(letters)[:50], *talk("u a " * 80)])
            line = await line_in(histories, await measured(one, array))
    assert line is not None
    is_one(line, array)


async def test_what_another_caller_has_said_is_another_history() -> None:
    array = orjson.dumps(talk("s u a u"))
    with ThreadPoolExecutor(1) as pool:
        async with life() as one:
            histories = Histories(pool)
            lines = [
                await line_in(histories, await measured(one, array, tenant), tenant)
                for tenant in (ALICE, BOB)
            ]
    mine, other = lines
    assert mine is not None
    assert other is not None
    is_one(mine, array, ALICE)
    is_one(other, array, BOB)
    assert not {*mine.chain} & {*other.chain}


@pytest.mark.parametrize(
    ("count", "places"), [(0, []), (1, [6]), (2, [4, 6]), (3, [3, 4, 6]), (9, [1, 3, 4, 6])]
)
async def test_the_last_spoken_messages_are_counted_from_the_end(count: int, places: list[int]) -> None:
    async with life() as one:
        whole = await measured(one, orjson.dumps(talk("s u d a u s a")))
    assert last_spoken(whole, count) == places
