from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.budget import Policy, Window, budget
from proxy.store.memory import MemoryStore
from proxy.store.sqlite import SqliteStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.windows.kept import READ_AGAIN_AFTER
from proxy.windows.learned import BOUND_HOLDS, LEAST, LearnedWindows
from proxy.windows.overflow import Overflow
from tests.store.doubles import PATIENCE, Clock

UPSTREAM = "http://upstream.example/v1"
ALICE, BOB = b"alice", b"bob"
NAMELESS = Overflow()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer() -> LateWriter:
    return LateWriter(MemoryStore(), Tasks())


@pytest.fixture
def learned(clock: Clock, writer: LateWriter) -> LearnedWindows:
    return LearnedWindows(UPSTREAM, writer, clock)


def bound(learned: LearnedWindows, model: str = "m") -> tuple[int, bool] | None:
    found = learned.of(ALICE, model).bound
    return (found.tokens, found.of_prompt) if found is not None else None


def counts_answer(learned: LearnedWindows) -> bool:
    found = learned.of(ALICE, "m").bound
    return found is not None and found.counts_answer


async def test_a_limit_that_was_named_is_the_bound(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(8192, 9000), counted=8500, declared=500)
    assert bound(learned) == (8192, False)
    learned.refused(ALICE, "m", Overflow(200000, 213462, of_prompt=True), counted=200_500, declared=None)
    assert bound(learned) == (200000, True)


async def test_an_answer_that_was_counted_with_its_prompt_is_counted_from_then_on(
    learned: LearnedWindows, clock: Clock
) -> None:
    learned.refused(ALICE, "m", Overflow(8192, 9000), counted=8900, declared=7000)
    assert not counts_answer(learned)
    learned.refused(ALICE, "m", Overflow(8192, 10_000), counted=3000, declared=7000)
    assert (bound(learned), counts_answer(learned)) == ((8192, False), True)
    learned.refused(ALICE, "m", Overflow(8000), counted=8100, declared=None)
    assert (bound(learned), counts_answer(learned)) == ((8000, False), True)
    clock.now += BOUND_HOLDS + 1
    learned.refused(ALICE, "m", Overflow(8000), counted=8100, declared=None)
    assert not counts_answer(learned)


@pytest.mark.parametrize("declared", [7000, 8192, 10**6])
async def test_an_answer_that_leaves_nothing_narrows_no_window(
    learned: LearnedWindows, declared: int
) -> None:
    learned.refused(ALICE, "m", Overflow(8192, 1000 + declared), counted=1000, declared=declared)
    assert bound(learned) == (8192, False)
    learned.refused(ALICE, "other", Overflow(None, 1000 + declared), counted=1000, declared=declared)
    assert bound(learned, "other") == (1000 + declared - 1, False)


async def test_other_models_learn_nothing_from_it(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(8192, 9000), counted=8500, declared=None)
    assert bound(learned, "another") is None


@pytest.mark.parametrize("declared", [None, 500, 100_000])
async def test_a_refusal_without_numbers_bounds_just_below_what_was_sent(
    learned: LearnedWindows, declared: int | None
) -> None:
    learned.refused(ALICE, "m", NAMELESS, counted=9000, declared=declared)
    assert bound(learned) == (9000 + (declared or 0) - 1, False)


async def test_the_upstream_s_own_count_of_what_was_sent_is_believed(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(asked=12_000), counted=9000, declared=None)
    assert bound(learned) == (11_999, False)


async def test_what_was_refused_without_numbers_no_longer_fits(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", NAMELESS, counted=9000, declared=500)
    found = bound(learned)
    assert found is not None
    assert budget(Window(found[0]), 500, Policy()).largest < 9000


async def test_a_refusal_without_numbers_never_raises_a_bound(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    learned.refused(ALICE, "m", NAMELESS, counted=50_000, declared=None)
    assert bound(learned) == (8192, False)


async def test_a_short_prompt_that_is_refused_does_not_narrow_the_window_for_everybody(
    learned: LearnedWindows,
) -> None:
    learned.accepted(ALICE, "m", 60_000)
    learned.refused(
        ALICE, "m", NAMELESS, counted=900, declared=None
    )  # with an attachment that nobody could count
    assert bound(learned) is None


async def test_figures_that_no_server_can_mean_teach_nothing(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(limit=1), counted=20, declared=None)
    learned.truncated(ALICE, "m", 5000, 999, somebody_says=False)
    assert bound(learned) is None
    learned.refused(ALICE, "m", Overflow(limit=LEAST - 1), counted=5000, declared=None)
    assert bound(learned) == (4999, False)


async def test_what_was_billed_of_a_truncated_prompt_is_the_bound(learned: LearnedWindows) -> None:
    learned.truncated(ALICE, "m", 4000, 2050, somebody_says=False)
    assert bound(learned) == (2050, True)


async def test_a_server_that_cuts_more_than_it_must_is_bounded_by_what_it_took(
    learned: LearnedWindows,
) -> None:
    learned.accepted(ALICE, "m", 2685)
    learned.truncated(ALICE, "m", 4000, 2050, somebody_says=False)
    assert bound(learned) == (2685, True)


def cut(learned: LearnedWindows, sent: int, billed: int, *, somebody_says: bool = True) -> None:
    learned.truncated(ALICE, "m", sent, billed, somebody_says=somebody_says)


async def test_one_low_bill_does_not_outweigh_a_window_that_somebody_says(learned: LearnedWindows) -> None:
    cut(learned, 8000, 4000)
    assert bound(learned) is None
    cut(learned, 8100, 4000)  # hardly longer
    assert bound(learned) is None
    cut(learned, 10_000, 4050)
    assert bound(learned) == (4050, True)


async def test_bills_that_grow_with_what_is_sent_are_of_no_window(learned: LearnedWindows) -> None:
    """Whatever they leave out, it is not what lies beyond a window."""
    for sent in range(4000, 40_000, 1500):
        cut(learned, sent, sent // 2)
    assert bound(learned) is None


async def test_cuts_of_another_day_are_not_compared(learned: LearnedWindows, clock: Clock) -> None:
    cut(learned, 8000, 4000)
    clock.now += BOUND_HOLDS
    cut(learned, 80_000, 4000)
    assert bound(learned) is None
    cut(learned, 90_000, 4000)
    assert bound(learned) == (4000, True)


async def test_a_low_bill_within_the_bound_that_bills_have_taught_refutes_them(
    learned: LearnedWindows, clock: Clock
) -> None:
    cut(learned, 5000, 2500, somebody_says=False)
    assert bound(learned) == (2500, True)
    cut(learned, 2400, 1200, somebody_says=False)
    assert bound(learned) is None
    cut(learned, 5000, 2500, somebody_says=False)
    assert bound(learned) is None
    clock.now += BOUND_HOLDS
    cut(learned, 5000, 2500, somebody_says=False)
    assert bound(learned) == (2500, True)


async def test_a_low_bill_does_not_refute_a_refusal(learned: LearnedWindows) -> None:
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    cut(learned, 8000, 4000, somebody_says=False)
    assert bound(learned) == (8192, False)


async def test_what_one_caller_provokes_is_nothing_to_another(learned: LearnedWindows) -> None:
    learned.refused(BOB, "m", Overflow(limit=1000), counted=2000, declared=None)
    learned.truncated(BOB, "m", 5000, 2000, somebody_says=False)
    learned.accepted(BOB, "m", 50_000)
    assert learned.of(ALICE, "m") == (None, 0)
    assert learned.of(BOB, "m").bound is not None


async def test_a_longer_prompt_that_is_taken_raises_the_bound_but_not_its_time(
    learned: LearnedWindows, clock: Clock
) -> None:
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    clock.now += BOUND_HOLDS - 1
    learned.accepted(ALICE, "m", 8000)
    assert bound(learned) == (8192, False)
    learned.accepted(ALICE, "m", 10_000)
    assert bound(learned) == (10_000, False)
    clock.now += 1
    assert bound(learned) is None


async def test_a_bound_ends_after_an_hour_and_what_was_taken_stays(
    learned: LearnedWindows, clock: Clock
) -> None:
    learned.accepted(ALICE, "m", 5000)
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    clock.now += BOUND_HOLDS
    assert learned.of(ALICE, "m") == (None, 5000)


async def test_a_bound_from_a_clock_that_was_wrong_does_not_hold_for_ever(
    learned: LearnedWindows, clock: Clock
) -> None:
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    clock.now -= 1e6
    assert bound(learned) is None


async def test_the_longest_prompt_that_was_taken_is_remembered(learned: LearnedWindows) -> None:
    for prompt in (100, 9000, 500):
        learned.accepted(ALICE, "m", prompt)
    assert learned.of(ALICE, "m").accepted == 9000


async def test_a_refusal_is_newer_than_what_was_taken_before(learned: LearnedWindows, clock: Clock) -> None:
    learned.accepted(ALICE, "m", 60_000)
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    assert learned.of(ALICE, "m").accepted == 8192
    clock.now += BOUND_HOLDS
    learned.refused(ALICE, "m", NAMELESS, counted=7000, declared=None)
    assert bound(learned) == (6999, False)


async def test_a_restart_keeps_what_was_learned(tmp_path: Path, clock: Clock) -> None:
    async def life() -> tuple[LearnedWindows, LateWriter, SqliteStore]:
        store = await SqliteStore.open(tmp_path / "state.db")
        writer = LateWriter(store, Tasks())
        return LearnedWindows(UPSTREAM, writer, clock), writer, store

    learned, writer, store = await life()
    learned.refused(ALICE, "m", Overflow(200_000, of_prompt=True), counted=210_000, declared=None)
    learned.accepted(ALICE, "m", 150_000)
    await writer.drain(PATIENCE)
    await store.close()

    learned, writer, store = await life()
    await asyncio.gather(*learned.recalling(ALICE, "m"))
    assert bound(learned) == (200_000, True)
    assert learned.of(ALICE, "m").accepted == 150_000
    clock.now += BOUND_HOLDS
    assert bound(learned) is None
    await store.close()


async def test_a_worker_that_sees_long_prompts_does_not_write_over_another_s_bound(
    learned: LearnedWindows, clock: Clock, writer: LateWriter
) -> None:
    other = LearnedWindows(UPSTREAM, writer, clock)
    await asyncio.gather(*other.recalling(ALICE, "m"))
    learned.refused(ALICE, "m", Overflow(8192), counted=9000, declared=None)
    other.accepted(ALICE, "m", 5000)
    other.accepted(ALICE, "m", 6000)
    clock.now += READ_AGAIN_AFTER
    for worker in (learned, other):
        await asyncio.gather(*worker.recalling(ALICE, "m"))
        assert bound(worker) == (8192, False)
    await writer.drain(PATIENCE)
