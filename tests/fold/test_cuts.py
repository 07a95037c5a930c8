from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given

from proxy.fold.cuts import (
    RULES,
    allowed_cuts,
    begins_with_a_user_message,
    leaving_something_on_either_side,
    not_before_a_result,
    not_between_a_call_and_its_results,
)
from proxy.fold.history import History, Turn, history
from tests.fold.chats import TENANT, answering, any_histories, calling, chat, turns, valid_histories

PLAIN = Turn(b"", "", b"", 1)


@pytest.mark.parametrize(
    ("line", "cuts"),
    [
        ("", []),
        ("u", []),
        ("s d", []),
        ("u a", [1]),
        ("u a u a u", [1, 2, 3, 4]),
    ],
)
def test_something_is_folded_and_something_stays(line: str, cuts: list[int]) -> None:
    assert sorted(leaving_something_on_either_side(chat(line))) == cuts
    assert allowed_cuts(chat(line)) == cuts


@pytest.mark.parametrize(
    ("line", "cuts"),
    [
        ("u c t a u", [1, 3, 4]),
        ("u c t c t c t", [1, 3, 5]),
        ("u c3 t t t u", [1, 5]),
        ("c2 t t", []),
        ("u f r a u", [1, 3, 4]),
        ("u f r f r c t u", [1, 3, 5, 7]),
    ],
)
def test_never_cuts_between_a_call_and_its_results(line: str, cuts: list[int]) -> None:
    assert allowed_cuts(chat(line)) == cuts


def test_instructions_are_not_counted() -> None:
    assert allowed_cuts(chat("s s u s c d t s a s u")) == allowed_cuts(chat("u c t a u")) == [1, 3, 4]


def test_calls_written_one_by_one_before_their_results_stay_together() -> None:
    assert allowed_cuts(chat("u c c t t u")) == [1, 5]


def test_a_result_that_comes_late_keeps_all_that_was_said_before_it() -> None:
    assert allowed_cuts(chat("u c2 t u a t a u")) == [1, 6, 7]


def test_a_call_without_a_result_ties_nothing() -> None:
    assert allowed_cuts(chat("u c a u c")) == [1, 2, 3, 4]


def test_a_result_without_a_call_stays_with_what_stands_before_it() -> None:
    assert allowed_cuts(chat("u a x x a u")) == [1, 4, 5]
    assert allowed_cuts(chat("x x u a")) == [2, 3]
    assert not_between_a_call_and_its_results(chat("u a x x a u")) == {1, 2, 3, 4, 5}
    assert not_before_a_result(chat("u a x x a u")) == {1, 4, 5}


def test_a_result_belongs_to_the_newest_call_of_its_id() -> None:
    group = [calling(PLAIN, ("call_0",)), answering(PLAIN, "call_0", "done")]
    assert allowed_cuts(history([*turns("u"), *group, *group, *group], TENANT)) == [1, 3, 5]


def test_two_results_of_one_id_both_stay_with_the_call() -> None:
    result = answering(PLAIN, "call_0", "done")
    past = history([*turns("u"), calling(PLAIN, ("call_0",)), result, result, *turns("a u")], TENANT)
    assert allowed_cuts(past) == [1, 4, 5]


def test_knows_a_tail_that_begins_with_a_user_message() -> None:
    past = chat("s u a s i c t")
    assert [begins_with_a_user_message(past, cut) for cut in range(past.length)] == [
        True,
        False,
        True,
        False,
        False,
    ]


@given(any_histories)
def test_whatever_comes_is_taken_as_it_is(past: History) -> None:
    cuts = allowed_cuts(past)
    assert cuts == sorted(set(cuts))
    assert all(0 < cut < past.length for cut in cuts)
    assert all(cut in rule(past) for cut in cuts for rule in RULES)


@given(valid_histories)
def test_no_result_is_left_without_its_call_on_either_side(past: History) -> None:
    for cut in allowed_cuts(past):
        for part in (past.spoken[:cut], past.spoken[cut:]):
            said = [past.turns[position] for position in part]
            assert sum(len(turn.calls) for turn in said) == sum(turn.answers is not None for turn in said)


@given(valid_histories)
def test_before_a_user_message_of_a_valid_history_there_is_always_a_cut(past: History) -> None:
    users = {number for number in range(1, past.length) if begins_with_a_user_message(past, number)}
    assert users <= set(allowed_cuts(past))


def test_a_hundred_thousand_results_of_one_call_take_no_time_to_speak_of() -> None:
    results = [answering(PLAIN, "call_0", "done")] * 100_000
    past = history([calling(PLAIN, ("call_0",)), *results, *turns("u")], TENANT)
    before = process_time()
    assert allowed_cuts(past) == [100_001]
    assert process_time() - before < 10
