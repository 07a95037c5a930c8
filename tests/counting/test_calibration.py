from __future__ import annotations

from itertools import pairwise
from math import sqrt
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.estimate import NOTHING, Estimate

# What a made-up provider bills for a token, a word, a digit and for framing an answer that is resent.
TRUTH = (1.1, 0.2, -0.3, 5.0)

additions = st.builds(
    Estimate,
    fixed=st.integers(0, 100),
    tokens=st.integers(1, 10**6),
    words=st.integers(0, 10**6),
    digits=st.integers(0, 10**6),
    answers=st.integers(0, 1),
)


def addition(chance: Random) -> Estimate:
    """Prose, code or a table: with more or fewer words and digits among its tokens."""
    tokens = int(10 ** chance.uniform(1, 4))
    words, digits = int(tokens * chance.uniform(0.1, 0.9)), int(tokens * chance.uniform(0, 0.5))
    return Estimate(4, tokens, words, digits, answers=chance.randint(0, 1))


def billed(estimate: Estimate, truth: tuple[float, float, float, float] = TRUTH) -> int:
    text = truth[0] * estimate.tokens + truth[1] * estimate.words + truth[2] * estimate.digits
    return round(estimate.fixed + text + truth[3] * estimate.answers)


def taught(lessons: int, begun: Calibration | None = None, seed: int = 1) -> Calibration:
    chance, calibration = Random(seed), begun or first_calibration(1.0)
    for _ in range(lessons):
        estimate = addition(chance)
        calibration = calibration.learned(estimate, billed(estimate))
    return calibration


def test_begins_at_the_factor_of_the_family() -> None:
    assert first_calibration(1.25).tokens(Estimate(fixed=4, tokens=100, words=80, digits=7)) == 129


def test_learning_from_consistent_bills_converges() -> None:
    calibration = taught(300)
    for seed in range(20):
        estimate = addition(Random(f"unseen {seed}"))
        assert calibration.tokens(estimate) == pytest.approx(billed(estimate), rel=0.02, abs=3)


def test_kinds_of_text_are_told_apart() -> None:
    calibration = taught(300)
    prose, table = Estimate(tokens=1000, words=800), Estimate(tokens=1000, words=100, digits=700)
    assert calibration.tokens(prose) == pytest.approx(1260, rel=0.02)
    assert calibration.tokens(table) == pytest.approx(910, rel=0.02)


def test_what_frames_an_answer_is_not_taken_for_text() -> None:
    calibration = first_calibration(1.0)
    for tokens in [10, 20, 30, 40] * 50:
        estimate = Estimate(4, tokens, tokens * 3 // 4, answers=1)
        calibration = calibration.learned(estimate, billed(estimate, (1.0, 0.0, 0.0, 6.0)))
    assert calibration.tokens(Estimate(tokens=20_000, words=15_000)) == pytest.approx(20_000, rel=0.03)


@pytest.mark.parametrize("odd", [0, 10**9])
def test_one_odd_bill_cannot_turn_the_weights(odd: int) -> None:
    before = taught(100)
    after = before.learned(Estimate(tokens=1000, words=700, digits=50), odd)
    prose = Estimate(tokens=1000, words=700, digits=50)
    assert after.tokens(prose) == pytest.approx(before.tokens(prose), rel=0.02)


def test_a_changed_tokenizer_is_learned_however_long_the_old_one_was_billed() -> None:
    calibration = taught(3000)
    chance = Random(2)
    for _ in range(300):
        estimate = addition(chance)
        calibration = calibration.learned(estimate, billed(estimate, (1.4, 0.2, -0.3, 5.0)))
    prose = Estimate(tokens=1000, words=700)
    assert calibration.tokens(prose) == pytest.approx(1540, rel=0.03)


def test_doubt_shrinks_but_never_ends() -> None:
    estimate = Estimate(tokens=5000, words=3500, digits=200)
    doubts = [taught(lessons).deviation(estimate) for lessons in (0, 10, 100)]
    assert all(later < earlier for earlier, later in pairwise(doubts))
    old = taught(5000)
    only_noise = sqrt(old.noise * estimate.tokens)
    assert old.deviation(estimate) > 1.05 * only_noise


@given(additions, st.integers(2, 10), st.integers(0, 200))
def test_the_deviation_grows_with_the_size(estimate: Estimate, times: int, lessons: int) -> None:
    calibration = taught(lessons)
    larger = sum([estimate] * (times - 1), estimate)
    assert calibration.deviation(larger) >= calibration.deviation(estimate) > 0


def test_what_is_nothing_is_certain() -> None:
    assert first_calibration(1.25).tokens(NOTHING) == first_calibration(1.25).deviation(NOTHING) == 0


def test_bills_that_scatter_widen_the_deviation() -> None:
    chance, estimate = Random(3), Estimate(tokens=400, words=300)
    exact, scattered = first_calibration(1.0), first_calibration(1.0)
    for _ in range(100):
        exact = exact.learned(estimate, 400)
        scattered = scattered.learned(estimate, 400 + chance.choice([-60, 60]))
    assert scattered.deviation(estimate) > 3 * exact.deviation(estimate)
    assert scattered.deviation(estimate) > 30


@given(additions)
def test_a_difference_below_zero_counts_as_much_as_the_same_above(estimate: Estimate) -> None:
    calibration = taught(50)
    gone = NOTHING - estimate
    assert calibration.tokens(gone) == pytest.approx(-calibration.tokens(estimate))
    assert calibration.deviation(gone) == pytest.approx(calibration.deviation(estimate))


@pytest.mark.parametrize(
    "estimate",
    [
        NOTHING,
        Estimate(fixed=50),
        Estimate(tokens=-100),
        Estimate(tokens=100, rough=1),
        Estimate(fixed=765, tokens=100, media=1),
    ],
)
def test_nothing_is_learned_where_anything_but_counted_text_was_added(estimate: Estimate) -> None:
    calibration = taught(5)
    assert calibration.learned(estimate, 1000) is calibration


@given(st.lists(st.tuples(additions, st.integers(-(10**9), 10**9)), max_size=40))
def test_whatever_is_billed_the_deviation_stays_a_number(bills: list[tuple[Estimate, int]]) -> None:
    calibration = first_calibration(1.0)
    for estimate, bill in bills:
        calibration = calibration.learned(estimate, bill)
    assert 0 < calibration.deviation(Estimate(tokens=1000, words=700, digits=10)) < 10**9


def test_survives_being_stored() -> None:
    calibration = taught(10)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(calibration), type=Calibration) == calibration
