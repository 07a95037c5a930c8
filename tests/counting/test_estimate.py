from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.estimate import NOTHING, Estimate

sizes = st.integers(0, 10**9)
estimates = st.builds(Estimate, sizes, sizes, sizes, sizes, sizes, sizes, sizes)


@given(estimates, estimates)
def test_what_is_added_can_be_taken_away_again(one: Estimate, other: Estimate) -> None:
    assert one + other - other == one
    assert one + NOTHING == one


@given(estimates, estimates)
def test_the_order_of_adding_does_not_matter(one: Estimate, other: Estimate) -> None:
    assert one + other == other + one


def test_a_difference_may_be_below_zero() -> None:
    assert (Estimate(fixed=4, tokens=10) - Estimate(fixed=4, tokens=30)).plain == -20


def test_at_face_value_it_is_framing_and_tokens() -> None:
    assert Estimate(fixed=4, tokens=10, words=8, digits=3, answers=1).plain == 14


def test_an_estimate_that_was_stored_before_answers_were_told_apart_is_still_read() -> None:
    stored = msgspec.msgpack.encode([4, 10, 8, 3, 0])
    assert msgspec.msgpack.decode(stored, type=Estimate) == Estimate(4, 10, 8, 3)
