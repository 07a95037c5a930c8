"""A fold is made once, however many ask for it and wherever; a model that fails is left alone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.callers import Callers
from proxy.events import Event, Events
from proxy.fold.history import History, history
from proxy.fold.record import Fold, Kind
from proxy.fold.tail import Cut
from proxy.folds import Folds
from proxy.making import Job
from proxy.metrics import Metrics
from proxy.ports import Store
from proxy.spending import Spending
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.summarizer import TOO_LONG, Summarizer, SummaryFailed, SummaryRefused, Wanted, Written
from proxy.tasks import Tasks
from proxy.tidings import Reason, Tidings
from proxy.usage import Usage
from proxy.workshop import Order, Work, Workshop
from tests.test_making import BESIDE, SHORT, Writing, job, prefix_of, talk, turn, words

ALICE, BOB = b"a" * 16, b"b" * 16


class Held:
    """A summary model that answers when it is let."""

    def __init__(self, *, usage: Usage | None = None, in_callers_name: bool = False) -> None:
        self.asked: asyncio.Queue[Wanted] = asyncio.Queue()
        self.calls = 0
        self.may_answer = asyncio.Event()
        self._usage = usage
        self._in_callers_name = in_callers_name

    async def write(self, wanted: Wanted) -> Written:
        self.calls += 1
        self.asked.put_nowait(wanted)
        await self.may_answer.wait()
        message = {"role": "assistant", "content": SHORT}
        return Written(message, "stop", wanted.model, self._usage, self._in_callers_name)


class Failing:
    """A summary model that fails for these reasons one after the other, and is well again then."""

    def __init__(self, *failures: SummaryFailed) -> None:
        self._failures = list(failures)
        self.calls = 0

    async def write(self, wanted: Wanted) -> Written:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return Written({"role": "assistant", "content": SHORT}, "stop", wanted.model, None)


@dataclass
class Shop:
    workshop: Workshop
    folds: Folds
    metrics: Metrics
    heard: list[Event]
    now: list[float]
    tasks: Tasks
    callers: Callers

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tailfold_{name}", labels) or 0.0


@asynccontextmanager
async def shop(
    summarizer: Summarizer,
    store: Store | None = None,
    *,
    most: int | None = None,
    now: list[float] | None = None,
    lease: float = 60.0,
) -> AsyncIterator[Shop]:
    shelf, tasks, metrics, events = store or MemoryStore(), Tasks(), Metrics(), Events()
    clock = now if now is not None else [1_000.0]
    heard: list[Event] = []
    writer, callers = LateWriter(shelf, tasks), Callers()
    folds = Folds(shelf, writer, ttl=lambda: 3600.0)
    spending = Spending(writer, most, clock=lambda: clock[0])
    workshop = Workshop(
        folds,
        shelf,
        tasks,
        summarizer,
        spending,
        Tidings(metrics, events, tells=True),
        callers,
        patience=20.0,
        clock=lambda: clock[0],
        lease=lease,
    )
    with events.listening() as listener, capture_logs():
        listening = tasks.start(_listen(listener, heard), name="listen")
        yield Shop(workshop, folds, metrics, heard, clock, tasks, callers)
        # What was told is heard, then the listener goes.
        await asyncio.sleep(0)
        listening.cancel()
    await writer.drain(60)
    await tasks.close(0)


async def _listen(listener: Any, heard: list[Event]) -> None:
    async for event in listener:
        heard.append(event)  # noqa: PERF401 - it has no end


def order(of: History | None = None, covers: int = 6, **others: Any) -> Order:
    given = Order(ALICE, "c", job(of or talk(8), Cut(covers, (), None)), Reason.SOFT, Kind.SUMMARY, words)
    return replace(given, **others)


def of_model(model: str) -> Job:
    return replace(order().job, model=model)


# One for all.


async def test_whoever_asks_gets_the_same_fold_and_the_model_is_asked_once() -> None:
    model = Held()
    async with shop(model) as one:
        tasks = [one.workshop.begin(order()) for _ in range(10)]
        await model.asked.get()
        tasks += [one.workshop.begin(order()) for _ in range(10)]
        model.may_answer.set()
        folds = await asyncio.gather(*tasks)
        assert folds[0] is not None
        assert all(fold is folds[0] for fold in folds)
        assert model.calls == 1
        assert await one.folds.at(ALICE, order().job.history.home, order().job.history.chain[6]) == folds[0]
        assert one.count("folds_total", strategy="summary", trigger="soft", result="made") == 1
    assert [event.kind for event in one.heard] == ["fold_made"]


@pytest.mark.parametrize("in_callers_name", [True, False])
async def test_a_summary_in_the_caller_s_name_shows_that_the_upstream_accepts_the_caller(
    in_callers_name: bool,
) -> None:
    model = Held(in_callers_name=in_callers_name)
    model.may_answer.set()
    async with shop(model) as one:
        assert await one.workshop.begin(order()) is not None
        assert one.callers.know(ALICE) is in_callers_name


async def test_who_leaves_takes_the_fold_with_him_from_nobody() -> None:
    model = Held()
    async with shop(model) as one:
        task = one.workshop.begin(order())
        await model.asked.get()

        async def wait_for_it() -> None:
            await asyncio.wait({one.workshop.begin(order())})

        waiting = asyncio.create_task(wait_for_it())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        model.may_answer.set()
        assert await task is not None


async def test_other_prefixes_and_other_callers_have_folds_of_their_own() -> None:
    model = Held()
    model.may_answer.set()
    other = history([turn(number, "user") for number in range(8)], BOB)
    async with shop(model) as one:
        orders = [order(), order(covers=4), order(other, tenant=BOB)]
        folds = await asyncio.gather(*map(one.workshop.begin, orders))
    assert len({fold.prefix for fold in folds if fold}) == 3
    assert model.calls == 3


async def test_what_is_being_made_of_a_history_is_known_until_it_is_made() -> None:
    model = Held()
    async with shop(model) as one:
        assert one.workshop.running(ALICE, talk(8)) is None
        task = one.workshop.begin(order())
        assert one.workshop.running(ALICE, talk(8)) == Work(order().job.prefix_value, task)
        assert one.workshop.running(ALICE, talk(60)) == Work(order().job.prefix_value, task)
        assert one.workshop.running(ALICE, talk(5)) is None
        assert one.workshop.running(BOB, talk(8)) is None
        model.may_answer.set()
        await task
        assert one.workshop.running(ALICE, talk(8)) is None


async def test_idle_is_when_everything_has_been_made() -> None:
    model = Held()
    async with shop(model) as one:
        await one.workshop.idle()
        tasks = [one.workshop.begin(order(covers=covers)) for covers in (2, 4, 6)]
        assert not any(task.done() for task in tasks)
        model.may_answer.set()
        await one.workshop.idle()
        assert all(task.done() for task in tasks)


async def test_an_extract_asks_no_model() -> None:
    model = Held()
    async with shop(model) as one:
        fold = await one.workshop.begin(order(kind=Kind.EXTRACT))
    assert fold is not None
    assert (fold.kind, model.calls) == (Kind.EXTRACT, 0)


async def test_by_when_a_fold_is_expected_follows_the_patience() -> None:
    async with shop(Writing(SHORT)) as one:
        until = one.workshop.until()
        assert until == 1_020.0
        assert one.workshop.is_fresh(until)
        one.now[0] = 1_020.0
        assert not one.workshop.is_fresh(until)


# In all processes that share a store.


async def test_two_workshops_on_one_store_make_one_fold() -> None:
    store, model, other_model = MemoryStore(), Held(), Held()
    async with shop(model, store) as one, shop(other_model, store) as other:
        first = one.workshop.begin(order())
        await model.asked.get()
        second = other.workshop.begin(order())
        # It is waiting for the other by then.
        assert not (await asyncio.wait({second}, timeout=0.05))[0]
        model.may_answer.set()
        folds = await asyncio.gather(first, second)
        assert folds[0] == folds[1]
        assert other_model.calls == 0
        assert [
            shop.count("folds_total", strategy="summary", trigger="soft", result="made")
            for shop in (one, other)
        ] == [1, 0]


async def test_what_another_has_made_already_is_not_made_again() -> None:
    store, model = MemoryStore(), Held()
    async with shop(Writing(SHORT), store) as one, shop(model, store) as other:
        made = await one.workshop.begin(order())
        assert made is not None
        assert await other.workshop.begin(order()) == made
    assert model.calls == 0


async def test_a_holder_that_dies_is_replaced_when_its_lease_is_over() -> None:
    now = [0.0]
    store, model = MemoryStore(clock=lambda: now[0]), Held()
    model.may_answer.set()
    prefix = order().job.history.chain[6]
    assert await store.claim(ALICE, prefix, b"somebody who dies", ttl=60.0)
    async with shop(model, store) as one:
        task = one.workshop.begin(order())
        assert not (await asyncio.wait({task}, timeout=0.05))[0]
        now[0] = 61.0
        assert await task is not None
    assert model.calls == 1


class Renewed(MemoryStore):
    """A store that tells when a claim was made by its holder once more."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(clock=lambda: now[0])
        self._holders: set[bytes] = set()
        self.renewed = asyncio.Event()

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        mine = await super().claim(tenant, key, holder, ttl=ttl)
        if mine and holder in self._holders:
            self.renewed.set()
        if mine:
            self._holders.add(holder)
        return mine


async def test_a_holder_that_lives_keeps_its_work_for_longer_than_a_lease() -> None:
    now = [0.0]
    store, model, other_model = Renewed(now), Held(), Held()
    async with shop(model, store, lease=0.03) as one, shop(other_model, store) as other:
        first = one.workshop.begin(order())
        await model.asked.get()
        second = other.workshop.begin(order())
        for _ in range(5):
            now[0] += 0.02
            store.renewed.clear()
            await store.renewed.wait()
        model.may_answer.set()
        assert await first == await second
    assert other_model.calls == 0


async def test_a_fold_that_could_not_be_made_is_left_to_the_next() -> None:
    store = MemoryStore()
    async with shop(Failing(SummaryFailed("timeout")), store) as one, shop(Writing(SHORT), store) as other:
        assert await one.workshop.begin(order()) is None
        assert await other.workshop.begin(order()) is not None


# What fails.


async def test_a_model_that_has_failed_is_left_alone_for_twice_as_long_each_time() -> None:
    model = Failing(*[SummaryFailed("timeout")] * 3)
    async with shop(model) as one:
        for pause in (2.0, 4.0, 8.0):
            assert one.workshop.hesitates(ALICE, "gpt-4o") is None
            assert await one.workshop.begin(order()) is None
            one.now[0] += pause - 0.01
            assert one.workshop.hesitates(ALICE, "gpt-4o") == "summary_model_failing"
            one.now[0] += 0.02
        assert await one.workshop.begin(order()) is not None
        assert one.workshop.hesitates(ALICE, "gpt-4o") is None
        assert one.count("folds_total", strategy="summary", trigger="soft", result="failed") == 3
        assert one.count("summary_failures_total", reason="timeout") == 3
    assert [event.kind for event in one.heard] == ["fold_failed"] * 3 + ["fold_made"]
    assert one.heard[0].data == {"trigger": "soft", "why": "timeout"}


async def test_after_a_success_pauses_begin_anew() -> None:
    failing, well = SummaryFailed("timeout"), SHORT
    async with shop(Writing(failing, failing, well, failing)) as one:
        for covers in (2, 3, 4, 5):
            await one.workshop.begin(order(covers=covers))
            one.now[0] += 2.01 if covers != 3 else 4.01
            assert one.workshop.hesitates(ALICE, "gpt-4o") is None


async def test_the_pause_that_the_upstream_asks_for_is_kept() -> None:
    async with shop(Failing(SummaryFailed("status_429", 90.0))) as one:
        await one.workshop.begin(order())
        one.now[0] += 89.0
        assert one.workshop.hesitates(ALICE, "gpt-4o") == "summary_model_failing"
        one.now[0] += 2.0
        assert one.workshop.hesitates(ALICE, "gpt-4o") is None


async def test_a_model_that_fails_for_weeks_is_still_asked_now_and_then() -> None:
    async with shop(Writing(SummaryFailed("timeout"))) as one:
        short = order(talk(2, tokens=9), covers=1)
        for _ in range(1_100):
            assert await one.workshop.begin(short) is None
            one.now[0] += 600.01
            assert one.workshop.hesitates(ALICE, "gpt-4o") is None


async def test_what_fails_for_one_caller_or_model_is_asked_for_others() -> None:
    async with shop(Failing(SummaryFailed("unauthorized"))) as one:
        await one.workshop.begin(order())
        assert one.workshop.hesitates(ALICE, "gpt-4o") is not None
        assert one.workshop.hesitates(BOB, "gpt-4o") is None
        assert one.workshop.hesitates(ALICE, "gpt-4.1") is None
        assert await one.workshop.begin(order(job=of_model("gpt-4.1"))) is not None
        assert one.workshop.hesitates(ALICE, "gpt-4o") is not None


# What it costs.


async def test_who_has_spent_his_tokens_gets_no_summary_until_tomorrow() -> None:
    model = Held(usage=Usage(900, 100))
    model.may_answer.set()
    async with shop(model, most=1_500) as one:
        for covers in (2, 4):
            assert one.workshop.hesitates(ALICE, "gpt-4o") is None
            assert await one.workshop.begin(order(covers=covers)) is not None
        assert one.workshop.hesitates(ALICE, "gpt-4o") == "summary_budget"
        assert one.workshop.hesitates(BOB, "gpt-4o") is None
        assert one.count("summary_tokens_total", kind="input") == 1_800
        assert await one.workshop.begin(order(covers=6, kind=Kind.EXTRACT)) is not None
        one.now[0] += 24 * 3600
        assert one.workshop.hesitates(ALICE, "gpt-4o") is None


async def test_what_was_spent_before_this_process_began_counts() -> None:
    store, model = MemoryStore(), Held(usage=Usage(900, 100))
    model.may_answer.set()
    async with shop(model, store, most=1_000) as one:
        assert await one.workshop.begin(order(covers=4)) is not None
    async with shop(model, store, most=1_000) as later:
        assert await later.workshop.begin(order()) is None
        assert later.workshop.hesitates(ALICE, "gpt-4o") == "summary_budget"
        later.now[0] += 24 * 3600  # no failure of the model, so nothing to pause for
        assert later.workshop.hesitates(ALICE, "gpt-4o") is None
    assert model.calls == 1


# What is kept.


async def test_of_two_folds_of_a_prefix_the_first_is_kept_and_told() -> None:
    async with shop(Writing(SHORT)) as one:
        of = order()
        first, second = [one.workshop.maker(of).truncation(of.job) for _ in range(2)]
        assert await one.workshop.keep(of, first) == first
        assert await one.workshop.keep(of, second) == first
        kept: Fold | None = await one.folds.at(ALICE, first.home, first.prefix)
        assert kept == first
    assert [event.data["fold"] for event in one.heard] == [first.id]


# On a conversation's own prefix.


class Particular:
    """A summary model that fails where it is asked on a prefix, and writes well in the usual way."""

    def __init__(self, failure: SummaryFailed | None = None) -> None:
        self._failure = failure
        self.on_prefix: list[bool] = []

    async def write(self, wanted: Wanted) -> Written:
        self.on_prefix.append(bool(wanted.beside_messages))
        if self._failure is not None and wanted.beside_messages:
            raise self._failure
        return Written({"role": "assistant", "content": SHORT}, "stop", wanted.model, None)


def on_prefix() -> Order:
    wanted = order()
    return replace(wanted, job=replace(wanted.job, prefix=prefix_of(wanted.job.history, 6)))


async def test_a_fold_on_a_prefix_is_for_those_with_the_same_instructions() -> None:
    async with shop(Particular()) as one:
        wanted = on_prefix()
        history, task = wanted.job.history, one.workshop.begin(wanted)
        assert one.workshop.running(ALICE, history, BESIDE) == Work(wanted.job.prefix_value, task)
        assert one.workshop.running(ALICE, history, b"others") is None
        assert one.workshop.running(ALICE, history) is None
        assert await one.folds.known(ALICE, history, BESIDE) == []
        fold = await task
        assert await one.folds.known(ALICE, history, BESIDE) == [fold]
        assert await one.folds.known(ALICE, history, b"others") == []
        assert await one.folds.known(ALICE, history) == []


@pytest.mark.parametrize(("reason", "is_tried_again"), [("status_400", False), (TOO_LONG, True)])
async def test_where_a_prefix_is_refused_it_is_told_in_the_usual_way_for_a_while(
    reason: str, is_tried_again: bool
) -> None:
    model = Particular(SummaryRefused(reason))
    async with shop(model) as one:
        fold = await one.workshop.begin(on_prefix())
        assert fold is not None
        assert (fold.kind, fold.beside) == (Kind.SUMMARY, None)
        assert model.on_prefix == [True, False]
        assert one.workshop.writes_on_prefixes(ALICE, "gpt-4o") is is_tried_again
        assert one.workshop.writes_on_prefixes(BOB, "gpt-4o")
        one.now[0] += 3_600
        assert one.workshop.writes_on_prefixes(ALICE, "gpt-4o")


async def test_a_model_that_is_out_of_order_is_not_asked_in_another_way() -> None:
    model = Particular(SummaryFailed("timeout"))
    async with shop(model) as one:
        assert await one.workshop.begin(on_prefix()) is None
        assert model.on_prefix == [True]
        assert one.workshop.hesitates(ALICE, "gpt-4o") == "summary_model_failing"


async def test_what_another_process_is_at_is_told_from_what_nobody_is_at_any_more() -> None:
    store, model = MemoryStore(), Held()
    async with shop(model, store) as one, shop(Held(), store) as other:
        task = one.workshop.begin(order(covers=4))
        await model.asked.get()
        home, prefix = order().job.history.home, order(covers=4).job.prefix_value
        assert await other.workshop.is_made_elsewhere(ALICE, home, prefix, None)
        assert not await other.workshop.is_made_elsewhere(ALICE, home, order(covers=2).job.prefix_value, None)
        model.may_answer.set()
        await task
        assert await other.workshop.is_made_elsewhere(ALICE, home, prefix, None)  # a moment ago
