"""A history is told in few steps, each of which makes good use of the model's window."""

from __future__ import annotations

import pytest

from proxy.fold.steps import AROUND, MOST_STEPS, Steps, steps
from tests.fold.words import assistant, count, user

TALK = [user("question " * 100), assistant("answer " * 100)] * 500


def told(window: int, *, limit: int = 200, previous: str = "") -> Steps:
    return steps(TALK, 0, previous, window=window, limit=limit, count=count)


@pytest.mark.parametrize("window", [4_000, 8_000, 32_000, 128_000, 10**9])
def test_a_thousand_messages_take_seven_steps_at_most_that_fill_half_of_the_window(window: int) -> None:
    limit = max(200, window // 16)
    found = told(window, limit=limit)
    assert len(found.chunks) <= MOST_STEPS
    assert [number for chunk in found.chunks for number in chunk.numbers] == list(range(1_000))
    assert all(AROUND + chunk.tokens + 2 * limit < window for chunk in found.chunks)
    if len(found.chunks) == MOST_STEPS:
        # The step itself is not quite full where the next message would have been too much.
        assert all(chunk.tokens > window / 2 - 300 for chunk in found.chunks[:-1])


def test_a_short_record_is_told_as_it_is_and_a_long_one_gives_way_to_what_is_new() -> None:
    assert told(8_000, previous="The record.").previous == "The record."
    found = told(8_000, previous="begun " + "word " * 50_000 + "ended")
    assert count(found.previous) <= 1_001
    assert found.previous.startswith("begun")
    assert found.previous.endswith("ended")
    assert all(chunk.tokens > 3_500 for chunk in found.chunks[:-1])
