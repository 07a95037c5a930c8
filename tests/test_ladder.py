"""Down the ladder: something that fits wherever anything does, and every rung a request that is valid."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.fold.assemble import assembled
from proxy.fold.lengths import UNBOUNDED, Lengths
from proxy.fold.plan import FoldPolicy
from proxy.fold.record import Fold, Kind
from proxy.fold.shrink import LEAST, NOTE
from proxy.fold.tail import Allowance, Cut, deeper_cut, last_group
from proxy.ladder import rungs
from proxy.making import Job, Maker
from proxy.messages import read
from proxy.weighing import Weighing
from tests.counting.peers import asked
from tests.desk import Desk, Quarters, desk, results, said
from tests.fold.chats import any_histories, body_of
from tests.fold.lanes import fold_of
from tests.fold.validator import INSTRUCTING, faults, user_speaks_first
from tests.test_making import SHORT, Writing

# What is said around an extract or a truncation, and the note in a result, at the most.
AROUND = 250
MAY_STAY = LEAST + len(NOTE) // 4 + 16


@dataclass
class Climb:
    weighing: Weighing
    folds: list[Fold]
    bodies: list[list[dict[str, Any]]]
    fits: list[bool]

    @property
    def kinds(self) -> list[Kind]:
        return [fold.kind for fold in self.folds]


def weigh(one: Desk, request: Any) -> Weighing:
    return Weighing(request, one.sizing, FoldPolicy(), plainly=False)


async def climb(
    one: Desk,
    request: Any,
    *,
    first: Cut | None = None,
    known: list[int] | None = None,
    role: Any = "user",
    lengths: Lengths = UNBOUNDED,
) -> Climb:
    """All rungs, though one that fits would be enough. `known` folds have summaries that are too large."""
    weighing = weigh(one, request)
    for covers in known or []:
        deeper = deeper_cut(weighing.history, [], Allowance(0, 0))
        kept = deeper.cut.kept if deeper and deeper.cut.covers == covers else ()
        weighing.add(fold_of(weighing.history, covers, *kept, told=100_000))
    history = weighing.history
    job = Job(history, first or Cut(0, (), None), "m", None, lengths, [], role)
    maker = Maker(Writing(SHORT), one.sizing.text_counter(request.sized))
    folds = [fold async for fold in rungs(weighing, first, job, maker)]
    bodies = [assembled(request.chat, history, fold) for fold in folds]
    fits = [await weighing.fits_with(fold) for fold in folds]
    return Climb(weighing, folds, [orjson.loads(body or b"null")["messages"] for body in bodies], fits)


def least(weighing: Weighing) -> int:
    """Of a request in which no more is said than must be."""
    kept = [weighing.history.turns[weighing.history.spoken[n]] for n in last_group(weighing.history).kept]
    spoken = sum(min(turn.tokens, MAY_STAY) if turn.answers is not None else turn.tokens for turn in kept)
    instructions = sum(turn.tokens for turn in weighing.history.turns if turn.instructs)
    return weighing.fixed + instructions + spoken + AROUND


def can_be_smaller(weighing: Weighing) -> bool:
    cut = last_group(weighing.history)
    return len(cut.kept) < cut.covers or any(turn.answers for turn in weighing.history.turns)


def instructions_in(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The client's own."""
    found = [message for message in messages if message["role"] in INSTRUCTING]
    return [message for message in found if "⟦" not in message["content"]]


# In order.


async def test_from_an_extract_over_a_truncation_to_shorter_results() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        chat = [*said("begin", "word " * 4_000, "go on"), *results("row " * 20_000, "short")]
        steps = await climb(one, await one.request(chat))
    assert steps.kinds == [Kind.TRUNCATION, Kind.SHRUNK, Kind.TRUNCATION, Kind.TRUNCATION]
    assert steps.fits == [False, True, True, True]
    shorter = steps.bodies[-1][-2]["content"]
    assert "characters left out here" in shorter
    assert steps.bodies[-1][-1]["content"] == "short"


async def test_an_extract_has_the_room_that_is_left() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        chat = said("begin", *["The cause was line 7. " * 300] * 9, "go on")
        steps = await climb(one, await one.request(chat), first=Cut(4, (), None))
        assert steps.kinds[:3] == [Kind.EXTRACT, Kind.TRUNCATION, Kind.EXTRACT]
        assert steps.fits[:2] == [True, True]
        assert steps.folds[0].covers == 10
        assert "The cause was line 7" in steps.folds[0].text
        roomy = await climb(
            one, await one.request(said("a", "word " * 1_500, "b", "c", "d")), first=Cut(2, (), None)
        )
        assert [fold.covers for fold in roomy.folds[:2]] == [2, 4]


async def test_an_extract_takes_a_small_part_of_the_room_however_much_is_free_and_was_said() -> None:
    async with desk(window=8_000, encoding=Quarters()) as one:
        chat = said(
            *(f"The cause of {number} was line {number * 7}. " * 200 for number in range(60)), "go on"
        )
        request = await one.request(chat, max_tokens=100)
        room = request.sized.budget.room
        steps = await climb(one, request, first=Cut(60, (), None), lengths=Lengths(room=room))
        assert steps.kinds[0] is Kind.EXTRACT
        assert steps.weighing.beside(60, ()) < room / 10
        assert room / 16 < steps.folds[0].summary_tokens < room / 4


async def test_where_nothing_was_left_out_nobody_is_told_that_it_was() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        chat = [{"role": "user", "content": "look"}, *results("row " * 20_000)]
        steps = await climb(one, await one.request(chat))
    assert steps.fits[-1]
    assert [message["role"] for message in steps.bodies[-1]] == ["user", "assistant", "tool"]
    assert "0 earlier messages" not in str(steps.bodies)


async def test_a_fold_that_is_there_and_too_large_does_not_end_the_ladder() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        request = await one.request(said("begin", "word " * 8_000, "go on"))
        steps = await climb(one, request, known=[2])
    assert steps.kinds == [Kind.EXTRACT, Kind.TRUNCATION, Kind.TRUNCATION]
    assert steps.fits == [True, True, True]
    assert steps.bodies[-1][-1]["content"] == "go on"


@pytest.mark.parametrize("chat", [said("word " * 8_000), [{"role": "system", "content": "word " * 8_000}]])
async def test_where_nothing_can_be_left_out_no_rung_fits(chat: Any) -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        steps = await climb(one, await one.request(chat))
    assert not any(steps.fits)
    assert all(body == chat for body in steps.bodies)


async def test_what_is_left_out_once_stays_left_out_while_the_conversation_goes_on() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        chat = [*said("begin", "word " * 4_000, "go on"), *results("row " * 20_000)]
        steps = await climb(one, await one.request(chat))
        later = await one.request([*chat, *said("I see", "and now?", first="assistant")])
        weighing = weigh(one, later)
        weighing.add(steps.folds[-1])
        form = await weighing.form(steps.folds[-1])
        assert form is not None
        assert orjson.loads(form.chat.raw)["messages"][: len(steps.bodies[-1])] == steps.bodies[-1]
        assert form.sized.counted.count.tokens < later.sized.counted.count.tokens / 5


# Whatever the history.

sizes = st.sampled_from([0, 3, 40, 40, 400, 4_000, 40_000])
texts = st.builds(
    lambda word, size: (word * size)[:size], st.sampled_from(["word ", "größer 😀\n", '"\\']), sizes
)
functions = texts.map(
    lambda text: [
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": text},
    ]
)
parts = texts.map(
    lambda text: [
        {"role": "assistant", "content": "", "tool_calls": results("")[0]["tool_calls"]},
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": text}]},
    ]
)
called = st.lists(texts, min_size=1, max_size=4).map(lambda told: results(*told)) | functions | parts
spoken = st.builds(
    lambda role, text: [{"role": role, "content": text}], st.sampled_from(["user", "assistant"]), texts
)
instructions = st.sampled_from([[], [], [{"role": "system", "content": "Be brief."}]])
chats = st.builds(
    lambda before, groups: [*before, *(message for group in groups for message in group)],
    instructions,
    st.lists(spoken | called, min_size=1, max_size=8),
)


@settings(deadline=None)
@given(chats, st.sampled_from([1_000, 2_000, 8_000]), st.sampled_from(["user", "system"]), st.data())
def test_the_last_rung_fits_wherever_anything_does_and_each_is_valid(
    chat: Any, window: int, role: Any, data: st.DataObject
) -> None:
    async def go_down() -> None:
        async with desk(window=window, encoding=Quarters()) as one:
            request = await one.request(chat, max_tokens=100)
            history = weigh(one, request).history
            deepest = deeper_cut(history, [], Allowance(0, 0))
            known = [deepest.cut.covers] if deepest and data.draw(st.booleans()) else []
            steps = await climb(one, request, known=known, role=role)
            for body in steps.bodies:
                assert faults(body) == []
                assert user_speaks_first(body) or not user_speaks_first(chat)
                assert instructions_in(body) == instructions_in(chat)
            if least(steps.weighing) <= steps.weighing.budget.largest:
                fitted = steps.weighing.budget.fits(request.sized.counted.count)
                assert fitted or not can_be_smaller(steps.weighing) or steps.fits[-1]

    assert faults(chat) == []
    asyncio.run(go_down())


@settings(deadline=None)
@given(any_histories)
def test_no_history_is_too_strange(past: Any) -> None:
    """With results that nobody asked for and calls left open."""

    async def go_down() -> None:
        async with desk(window=1_000, encoding=Quarters()) as one:
            if past.turns:
                steps = await climb(one, await one.request_of(read(body_of(past), compressed=False)))
                assert all(steps.bodies)

    asyncio.run(go_down())


async def test_a_request_with_tools_is_weighed_with_them() -> None:
    async with desk(window=4_000, encoding=Quarters()) as one:
        tool = {
            "type": "function",
            "function": {"name": "look", "description": "word " * 1_500, "parameters": {}},
        }
        chat = [*said("begin", "word " * 2_000, "go on"), *results("row " * 20_000)]
        steps = await climb(one, await one.request_of(asked(chat, tools=[tool])))
        assert steps.weighing.fixed > 1_500
        assert steps.fits[-1]
