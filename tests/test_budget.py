from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.budget import Budget, Policy, Window, budget
from proxy.counting.anchors import Basis, Count

USUAL = Policy()


def allowed(window: Window, declared: int | None = None, policy: Policy = USUAL) -> Budget:
    return budget(window, declared, policy)


def sure(tokens: int) -> Count:
    return Count(tokens, 0, Basis.ANCHORED)


@pytest.mark.parametrize(
    ("window", "declared", "room", "largest"),
    [
        # Undeclared: the model's longest answer is reserved, but never more than a quarter …
        (Window(100_000, 4_096), None, 100_000 - 4_096 - 5_000, 100_000 - 1_024),
        (Window(100_000, 64_000), None, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        (Window(100_000), None, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        (Window(4_000), None, 4_000 - 1_000 - 200, 4_000 - 500),
        # … and what a model cannot answer need not be kept free for it.
        (Window(4_000, 100), None, 4_000 - 100 - 200, 4_000 - 100),
        # Declared: what the request asks for, as far as the model can answer at such length.
        (Window(100_000, 4_096), 1_000, 100_000 - 1_000 - 5_000, 99_000),
        (Window(100_000, 4_096), 50_000, 100_000 - 4_096 - 5_000, 100_000 - 4_096),
        (Window(100_000), 50_000, 100_000 - 50_000 - 5_000, 50_000),
        (Window(100_000), 75_000, 100_000 - 75_000 - 5_000, 25_000),
        # More than leaves a sensible rest: the upstream's to cap or to refuse, and taken for undeclared.
        (Window(100_000), 75_001, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        (Window(100_000), 100_000, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        (Window(100_000, 100_000), 2**39, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        # Where the upstream is known to count it, it is reserved as long as that leaves anything.
        (Window(100_000, 4_096, counts_answer=True), 50_000, 45_000, 50_000),
        (Window(100_000, counts_answer=True), 90_000, 6_250, 10_000),
        (Window(100_000, counts_answer=True), 93_750, 6_250, 6_250),
        (Window(100_000, counts_answer=True), 93_751, 100_000 - 25_000 - 5_000, 100_000 - 1_024),
        # The window is the prompt's alone (gpt-5: 272,000 beside 128,000).
        (Window(272_000, 128_000, excludes_answer=True), None, 272_000 - 13_600, 272_000),
        (Window(272_000, 128_000, excludes_answer=True), 128_000, 272_000 - 13_600, 272_000),
        (Window(272_000, 128_000, excludes_answer=True), 138_000, 272_000 - 13_600, 272_000),
        (Window(272_000, 128_000, True, counts_answer=True), 138_000, 262_000 - 13_600, 262_000),
        (Window(272_000, None, excludes_answer=True), 300_000, 272_000 - 13_600, 272_000),
        (Window(1), None, 1, 1),
    ],
)
def test_the_room_is_the_window_less_the_answer_less_the_margin(
    window: Window, declared: int | None, room: int, largest: int
) -> None:
    found = allowed(window, declared)
    assert (found.room, found.largest, found.window) == (room, largest, window.tokens)


def test_the_triggers_are_shares_of_the_room() -> None:
    found = allowed(Window(100_000, 10_000))
    assert (found.room, found.hard, found.soft) == (85_000, 80_750, 64_600)
    other = allowed(Window(100_000, 10_000), policy=Policy(threshold=0.5, soft_ratio=0.5, margin=0.1))
    assert (other.room, other.hard, other.soft) == (80_000, 40_000, 20_000)


shares = st.floats(0.0, 1.0, exclude_min=True)
windows = st.builds(Window, st.integers(1, 10**7), st.none() | st.integers(1, 10**7), *[st.booleans()] * 3)
answers = st.none() | st.integers(1, 10**7) | st.just(2**40)
policies = st.builds(Policy, shares, shares, st.floats(0.0, 1.0))


@given(windows, st.none() | st.integers(1, 2**40), policies)
def test_the_sizes_are_always_in_their_order(window: Window, declared: int | None, policy: Policy) -> None:
    found = allowed(window, declared, policy)
    assert 0 < found.soft <= found.hard <= found.room <= found.largest <= window.tokens


@given(windows, st.integers(1, 2**40), st.integers(1, 2**40), policies)
def test_who_asks_for_a_longer_answer_has_no_more_room_unless_it_leaves_no_sensible_rest(
    window: Window, one: int, other: int, policy: Policy
) -> None:
    longer, shorter = (allowed(window, each, policy) for each in (max(one, other), min(one, other)))
    undeclared = allowed(window, None, policy)
    assert longer == undeclared or (longer.room <= shorter.room and longer.largest <= shorter.largest)


@given(windows, answers)
def test_no_declared_answer_crushes_a_conversation(window: Window, declared: int | None) -> None:
    found = allowed(window, declared)
    share = 1 / 16 if window.counts_answer else 1 / 4 - USUAL.margin
    assert found.room >= int(share * window.tokens)
    assert found.largest >= int((1 / 16 if window.counts_answer else 1 / 4) * window.tokens)


@given(windows, st.integers(1, 10**7), answers)
def test_a_larger_window_never_has_less_room_for_the_same_answer(
    window: Window, more: int, declared: int | None
) -> None:
    """But where an answer that was not taken at its word comes to leave a sensible rest."""
    larger = replace(window, tokens=window.tokens + more)
    found, found_in_larger = allowed(window, declared), allowed(larger, declared)
    if found.reserved is None and found_in_larger.reserved is not None:
        return
    assert found.room <= found_in_larger.room + 1  # two shares are rounded
    assert found.largest <= found_in_larger.largest


@given(windows, st.integers(1, 2**40))
def test_no_more_is_reserved_than_the_model_can_answer(window: Window, declared: int) -> None:
    known = replace(window, counts_answer=False, max_output=window.max_output or 1)
    assert known.max_output is not None
    found, at_most = allowed(known, declared), allowed(known, min(declared, known.max_output))
    assert found == at_most


@given(windows, st.none() | st.integers(1, 2**40), st.integers(0, 10**7))
def test_a_window_that_is_only_assumed_starts_no_fold(
    window: Window, declared: int | None, tokens: int
) -> None:
    found = allowed(window, declared)
    past = found.past_hard(sure(tokens)) or found.past_soft(sure(tokens))
    assert not (window.assumed and past)
    assert found.may_fold is not window.assumed


def test_each_size_is_passed_by_the_token_after_it() -> None:
    found = allowed(Window(100_000, 10_000))
    assert not found.past_soft(sure(found.soft))
    assert found.past_soft(sure(found.soft + 1))
    assert not found.past_hard(sure(found.hard))
    assert found.past_hard(sure(found.hard + 1))
    assert found.fits(sure(found.largest))
    assert not found.fits(sure(found.largest + 1))


def test_an_unsure_count_reaches_the_trigger_before_a_sure_one_of_the_same_size() -> None:
    found = allowed(Window(100_000, 10_000))
    tokens = found.hard - 1_000
    rough = Count(tokens, tokens // 2, Basis.ROUGH)
    assert not found.past_hard(sure(tokens))
    assert found.past_hard(Count(tokens, 1_001, Basis.COLD))
    assert found.past_hard(rough)
    assert found.past_soft(Count(found.soft, 1, Basis.OPENING))
    assert found.fits(rough)  # whether it really does, the upstream will say


def models_of_litellm() -> dict[str, dict[str, Any]]:
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "model_prices_and_context_window_backup.json"
    models: dict[str, dict[str, Any]] = json.loads(file.read_bytes())
    return models


def test_every_chat_model_of_litellm_has_room() -> None:
    tried = 0
    for name, facts in models_of_litellm().items():
        tokens = facts.get("max_input_tokens")
        if facts.get("mode") != "chat" or not isinstance(tokens, int) or tokens <= 0:
            continue  # without a window there is nothing to share out
        longest = facts.get("max_output_tokens", facts.get("max_tokens"))
        output = longest if isinstance(longest, int) and longest > 0 else None
        for excludes in (False, True):
            for declared in (None, 1, 1_000, output):
                window = Window(tokens, output, excludes)
                found = allowed(window, declared)
                assert 0 < found.soft <= found.hard <= found.room <= found.largest <= tokens, name
                if declared is None:
                    assert found.room >= 0.69 * tokens, name
        tried += 1
    assert tried > 2_000
