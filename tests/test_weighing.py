"""What would be sent is counted as it would be sent; what would not is added up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.anchors import Basis, Count
from proxy.fold.assemble import sent
from proxy.fold.plan import FoldPolicy, Keep, Make, Reuse
from proxy.fold.record import Fold
from proxy.fold.tail import Cut
from proxy.lanes import Found, Lane, Relation
from proxy.messages import read
from proxy.request import Request
from proxy.usage import Usage
from proxy.weighing import Weighing, chosen
from tests.counting.peers import asked
from tests.desk import Desk, desk, results, said
from tests.fold.lanes import fold_of

# A character is a token here.
LONG = "x" * 1_000
USUAL = FoldPolicy(retain_tokens=500, min_tokens=0)


def weigh(one: Desk, request: Request, *folds: Fold, plainly: bool = False, counts: bool = True) -> Weighing:
    weighing = Weighing(request, one.sizing, USUAL, plainly=plainly, counts=counts)
    for fold in folds:
        weighing.add(fold)
    return weighing


async def chatted(one: Desk, turns: int = 5, **fields: Any) -> Request:
    return await one.request(said(*[LONG] * (turns - 1), "last"), **fields)


def with_last(request: Request, fold: str) -> Request:
    lane = Lane(id="l", conversation="c", began=0.0, length=1, fold=fold)
    return replace(request, found=Found(lane, Relation.CONTINUED))


async def test_as_it_came_it_is_what_was_counted() -> None:
    async with desk() as one:
        request = await chatted(one)
        weighing = weigh(one, request)
        assert weighing.as_it_came.chat is request.chat
        assert weighing.as_it_came.sized is request.sized
        assert weighing.size(None) is request.sized.counted.count
        assert weighing.fold_in_use is None


async def test_a_form_is_counted_as_it_is_sent() -> None:
    async with desk() as one:
        request = await chatted(one)
        weighing = weigh(one, request)
        fold = fold_of(weighing.history, 4, told=5)
        weighing.add(fold)
        form = await weighing.form(fold)
        assert form is not None
        assert orjson.loads(form.chat.raw)["messages"] == [
            orjson.loads(raw) for raw in sent(weighing.history, fold)
        ]
        again = await one.sized(read(form.chat.raw, compressed=False))
        assert form.sized.counted.count == again.counted.count
        assert await weighing.form(fold) is form


async def test_the_exact_size_replaces_the_sum() -> None:
    async with desk() as one:
        weighing = weigh(one, await chatted(one))
        fold = fold_of(weighing.history, 4, told=3_000)
        weighing.add(fold)
        added_up = weighing.size(fold)
        assert added_up.tokens == weighing.beside(4, ()) + 3_000
        assert added_up.at_most >= added_up.tokens
        form = await weighing.form(fold)
        assert form is not None
        assert weighing.size(fold) == form.sized.counted.count
        assert weighing.size(fold).tokens < 200  # it says nothing but `the first 4`


async def test_what_stands_beside_a_fold_is_added_up_as_it_is_counted() -> None:
    tool = {"type": "function", "function": {"name": "look", "description": LONG, "parameters": {}}}
    async with desk() as one:
        chat = [{"role": "system", "content": "Be brief."}, *said(LONG, "short", "x" * 700, "last")]
        request = await one.request_of(asked(chat, tools=[tool]))
        weighing = weigh(one, request)
        counted = request.sized.counted.count.tokens
        assert weighing.fixed > 1_000
        assert abs(weighing.beside(0, ()) - counted) <= 5
        assert abs(weighing.beside(2, (0,)) - (counted - weighing.history.turns[2].tokens)) <= 5


async def test_a_bill_for_what_opens_a_conversation_counts_for_what_is_fixed() -> None:
    async with desk() as one:
        first = await one.request(said("hello"))
        one.sizing.answered(first.sized, Usage(500, 10))
        weighing = weigh(one, await chatted(one))
        assert abs(weighing.fixed - 490) <= 20


async def test_a_result_that_is_sent_shorter_is_added_up_so() -> None:
    async with desk() as one:
        request = await one.request([*said("look"), *results("y" * 5_000)])
        weighing = weigh(one, request)
        shorter = orjson.dumps({"role": "tool", "tool_call_id": "call_0", "content": "y" * 100})
        fold = msgspec.structs.replace(
            fold_of(weighing.history, 3, 0, 1, 2, told=0), messages=(), shrunk={2: shorter}
        )
        weighing.add(fold)
        added_up = weighing.size(fold).tokens
        form = await weighing.form(fold)
        assert form is not None
        counted = form.sized.counted.count.tokens
        assert counted < 300
        assert abs(added_up - counted) < 150


# Plans.


@pytest.mark.parametrize("counts", [True, False])
async def test_a_plan_is_made_with_what_is_known(counts: bool) -> None:
    async with desk(window=5_000) as one:
        request = await chatted(one, 7)
        weighing = weigh(one, request, counts=counts)
        decided = await weighing.plan()
        assert isinstance(decided, Make)
        assert decided.must
        assert weighing.presses(decided)
        fold = fold_of(weighing.history, decided.cut.covers, *decided.cut.kept, told=100)
        weighing.add(fold)
        decided = await weighing.plan()
        assert chosen(decided) == fold
        assert not weighing.presses(decided)
        assert isinstance(weighing.size(fold), type(request.sized.counted.count)) == counts


async def test_a_fold_that_looked_as_if_it_fitted_is_seen_through() -> None:
    """It was counted by another model's tokens, say."""
    async with desk(window=5_000) as one:
        weighing = weigh(one, await chatted(one, 7))
        summary = orjson.dumps({"role": "system", "content": "z" * 6_000})
        large = msgspec.structs.replace(fold_of(weighing.history, 4, told=10), messages=(summary,))
        weighing.add(large)
        assert weighing.budget.fits(weighing.size(large))
        decided = await weighing.plan()
        assert not weighing.budget.fits(weighing.size(large))
        assert isinstance(decided, Make)
        assert decided.cut.covers > 4
        assert not await weighing.fits_with(large)


async def test_the_fold_in_use_is_counted_first() -> None:
    """Its sum may be too large, and another fold would be an empty cache."""
    async with desk(window=5_000) as one:
        request = await chatted(one, 7)
        history = weigh(one, request).history
        in_use = fold_of(history, 6, id="in-use", told=100_000)
        weighing = weigh(one, with_last(request, "in-use"), in_use)
        assert weighing.fold_in_use == in_use
        assert await weighing.plan() == Reuse(in_use)


async def test_what_fits_as_it_is_presses_nobody() -> None:
    async with desk() as one:
        weighing = weigh(one, await one.request(said("hello")))
        decided = await weighing.plan()
        assert decided == Keep()
        assert not weighing.presses(decided)


async def test_a_window_that_nobody_has_told_presses_nobody() -> None:
    async with desk(window=None) as one:
        weighing = weigh(one, await chatted(one, 9))
        decided = await weighing.plan()
        assert decided == Keep()
        assert not weighing.budget.fits(weighing.size(None))
        assert not weighing.presses(decided)


async def test_what_cannot_be_written_into_the_clients_bytes_has_no_form() -> None:
    async with desk(window=5_000) as one:
        messages = orjson.dumps(said(*[LONG] * 7))
        request = await one.request_of(
            read(b'{"model":"m","messages":[],"messages":%b}' % messages, compressed=False)
        )
        weighing = weigh(one, request)
        fold = fold_of(weighing.history, 6, told=100)
        weighing.add(fold)
        assert not await weighing.fits_with(fold)
        assert weighing.folds == []


# A bill for the conversation scales what was never billed, and what is not known of it.


async def of_a_form(*times: float, covers: int) -> list[Count]:
    """What it is counted as, in a conversation that was billed so many times as high as it looked."""
    counts = []
    async with desk(window=100_000) as one:
        request = await one.request([{"role": "system", "content": LONG}, *said(*[LONG] * 9)])
        counted = request.sized.counted
        for each in times:
            billed = replace(
                counted.count, tokens=round(each * counted.count.tokens), basis=Basis.ANCHORED, uncertainty=0
            )
            sized = replace(request.sized, counted=replace(counted, count=billed))
            weighing = weigh(one, replace(request, sized=sized))
            form = await weighing.form(fold_of(weighing.history, covers, told=5))
            assert form is not None
            counts.append(form.sized.counted.count)
    return counts


@given(
    times=st.lists(st.floats(0.1, 5), min_size=2, max_size=5).map(sorted), covers=st.sampled_from([2, 6, 8])
)
def test_what_was_billed_higher_is_counted_higher_and_with_more_doubt(
    times: list[float], covers: int
) -> None:
    for lower, higher in pairwise(asyncio.run(of_a_form(*times, covers=covers))):
        assert 0 < lower.tokens <= lower.at_most
        assert lower.tokens <= higher.tokens
        assert lower.at_most <= higher.at_most


async def test_a_form_may_be_off_by_as_much_more_as_it_costs_more() -> None:
    lower, usual, higher = await of_a_form(0.7, 1.0, 1.6, covers=4)
    assert lower.uncertainty < 0.8 * usual.uncertainty
    assert higher.uncertainty > 1.5 * usual.uncertainty
    assert higher.at_most - usual.at_most > 1.1 * (higher.tokens - usual.tokens)


# A model of its own mind.


async def test_a_template_that_has_refused_the_role_gets_the_plainer_form() -> None:
    async with desk() as one:
        weighing = weigh(one, await chatted(one), plainly=True)
        plainer = orjson.dumps({"role": "user", "content": "as a user's"})
        fold = msgspec.structs.replace(fold_of(weighing.history, 4), plainer=(plainer,))
        form = await weighing.form(fold)
        assert form is not None
        assert orjson.loads(form.chat.raw)["messages"][0]["content"] == "as a user's"
        assert form.chat.messages.startswith(b"[" + plainer)


async def test_an_upstream_that_counts_higher_has_a_stricter_budget() -> None:
    async with desk() as one:
        request = await chatted(one)
        usual, stricter = weigh(one, request).budget, weigh(one, replace(request, underrated=1.25)).budget
        assert usual == request.sized.budget
        for name in ("room", "hard", "soft", "largest"):
            assert getattr(stricter, name) == int(getattr(usual, name) / 1.25)
        assert stricter.window == usual.window
        assert weigh(one, replace(request, underrated=0.5)).budget == usual
        least = weigh(one, replace(request, underrated=10.0**9)).budget
        assert (least.room, least.largest) == (1, 1)


async def test_who_is_told_that_it_is_larger_makes_it_smaller() -> None:
    async with desk() as one:
        request = await chatted(one, 7)
        usual = weigh(one, request)
        assert not usual.presses(await usual.plan())
        decided = await weigh(one, replace(request, underrated=2.0)).plan()
        assert isinstance(decided, Make)
        assert decided.must


def test_what_a_plan_sends_at_once() -> None:
    cut = Cut(2, (), None)
    fold: Any = object()
    assert [chosen(Keep()), chosen(Keep(cut)), chosen(Make(cut, None, True))] == [None, None, None]
    assert [chosen(Reuse(fold)), chosen(Make(cut, fold, False))] == [fold, fold]
