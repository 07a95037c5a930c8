from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.cuts import allowed_cuts, begins_with_a_user_message
from proxy.fold.history import History
from proxy.fold.lengths import Lengths
from proxy.fold.record import Kind
from proxy.fold.tail import Allowance, Cut, Weighed, deeper_cut, last_group, usable_folds
from tests.fold.chats import any_histories, chat
from tests.fold.lanes import fold_of, spoken_tokens

ROOMY = 10**6


def cut_of(line: str, tail: int, messages: int = ROOMY) -> Cut | None:
    deeper = deeper_cut(chat(line), [], Allowance(tail, messages))
    return deeper.cut if deeper else None


def test_900_tokens_are_kept_where_one_message_more_would_make_1_100() -> None:
    assert cut_of("u:500 a:200 u:300 a:300 u:300", 1_000) == Cut(2, (), None)
    assert cut_of("u:500 a:200 u:300 a:300 u:300", 1_100) == Cut(2, (), None)  # a user message begins it
    assert cut_of("u:500 a:200 a:300 a:300 a:300", 1_000) == Cut(2, (0,), None)
    assert cut_of("u:500 a:900 a:200 a:300 a:300 a:300", 1_100) == Cut(2, (0,), None)


@pytest.mark.parametrize(("tail", "covers"), [(899, 4), (900, 2), (1_399, 2), (1_400, 1), (9_999, 1)])
def test_the_tail_is_the_largest_that_may_be(tail: int, covers: int) -> None:
    assert cut_of("u:500 u:500 u:200 a:300 u:400", tail) == Cut(covers, (), None)


def test_a_tail_that_begins_with_a_user_message_wins() -> None:
    assert cut_of("u a:300 u:50 a:300 c:50 t:50 u:100", 1_000) == Cut(2, (), None)
    assert cut_of("u a:300 u:50 a:300 c:50 t:50 u:100", 500) == Cut(6, (), None)


def test_without_one_the_largest_that_begins_with_anything_is_taken_and_the_question_stays() -> None:
    assert cut_of("u a:300 c:50 t:50 c:50 t:50 c:50 t:50", 200) == Cut(4, (0,), None)
    assert cut_of("u a u a:300 c:50 t:50 c:50 t:50 c:50 t:50", 299) == Cut(6, (2,), None)


def test_a_last_group_that_is_too_large_is_the_tail() -> None:
    assert cut_of("u a u c2 t:5000 t:5000", 1_000) == Cut(3, (2,), None)
    assert cut_of("u a u:5000", 1_000) == Cut(2, (), None)
    assert cut_of("u a u a", 0) == Cut(3, (2,), None)


@pytest.mark.parametrize("line", ["", "s", "u", "u:5000", "s u c t:9000", "c2 t t", "u a:500"])
def test_where_nothing_can_be_left_out_there_is_no_cut(line: str) -> None:
    assert cut_of(line, 100) is None


def test_the_tail_yields_where_the_rest_would_take_too_much() -> None:
    line = "s:3000 u:700 a:700 u:300 a:300 u:300"
    assert cut_of(line, 1_000, 3_000 + 200 + 900) == Cut(2, (), None)
    assert cut_of(line, 1_000, 3_000 + 200 + 899) == Cut(4, (), None)
    assert cut_of(line, 1_000, 0) == Cut(4, (), None)


def test_what_is_pinned_takes_from_the_tail() -> None:
    line = "u:2000 a:700 a:300 a:300 a:300"
    assert cut_of(line, 1_000, 2_000 + 270 + 900) == Cut(2, (0,), None)
    assert cut_of(line, 1_000, 2_000 + 270 + 899) == Cut(3, (0,), None)


def test_a_summary_is_expected_to_be_no_longer_than_its_writer_is_asked_for() -> None:
    past = chat("u:400000 a:600000 u:500 a:500 u:500")
    allowance = Allowance(1_000, 10_000, Lengths(window=128_000, longest_answer=4_096, room=100_000))
    deeper = deeper_cut(past, [], allowance)
    assert deeper is not None
    assert (deeper.cut.covers, deeper.summary) == (4, 4_096)
    base = fold_of(past, 2, told=6_000)
    deeper = deeper_cut(past, [base], allowance)
    assert deeper is not None
    assert deeper.summary == 700  # of the one that it goes on from and of what is new


def test_a_later_fold_goes_on_from_the_deepest_summary() -> None:
    past = chat("u:900 a u:900 a u:900 a u:900 a u")
    folds = [fold_of(past, 2), fold_of(past, 4)]
    deeper = deeper_cut(past, folds, Allowance(1_000, ROOMY))
    assert deeper is not None
    assert deeper.cut == Cut(6, (), folds[1])
    assert deeper_cut(past, list(reversed(folds)), Allowance(1_000, ROOMY)) == deeper
    assert deeper_cut(past, [*folds, fold_of(past, 8)], Allowance(1_000, ROOMY)) is None


@pytest.mark.parametrize("kind", [Kind.EXTRACT, Kind.TRUNCATION])
def test_what_a_stopgap_has_lost_is_summarised_from_the_request_itself(kind: Kind) -> None:
    past = chat("u:900 a u:900 a u:900 a u:900 a u")
    summary, stopgap = fold_of(past, 2), fold_of(past, 4, kind=kind)
    deeper = deeper_cut(past, [summary, stopgap], Allowance(1_000, ROOMY))
    assert deeper is not None
    assert deeper.cut == Cut(6, (), summary)


def test_a_fold_is_usable_where_its_cut_is_allowed_and_the_newest_user_message_is_not_lost() -> None:
    past = chat("u a u a c t a u")
    folds = [fold_of(past, covers) for covers in range(past.length + 1)]
    pinned = [fold_of(past, 4, 2, id="pinned"), fold_of(past, 6, 0, id="wrongly pinned")]
    usable = usable_folds(past, [*reversed(folds), *pinned])
    assert [fold.id for fold in usable] == ["fold-2", "pinned", "fold-7"]


def test_no_fold_is_made_anew_where_there_is_one_that_cannot_be_used() -> None:
    past = chat("u a:100 a:100 a:100 a:100")
    assert deeper_cut(past, [], Allowance(300, ROOMY)) == Weighed(
        Cut(2, (0,), None), tail=300, pinned=10, summary=200, left_out=100, freed=-100
    )
    deeper = deeper_cut(past, [fold_of(past, 2)], Allowance(300, ROOMY))
    assert deeper is not None
    assert deeper.cut == Cut(3, (0,), None)


def test_what_is_freed_is_what_is_sent_now_less_what_is_sent_then() -> None:
    past = chat("u:100 a:900 c:50 t:2000 c:50 t:50")
    assert deeper_cut(past, [], Allowance(100, ROOMY)) == Weighed(
        Cut(4, (0,), None), tail=100, pinned=100, summary=305, left_out=2_950, freed=2_950 - 305
    )
    fold = fold_of(past, 2, 0, told=250)
    assert deeper_cut(past, [fold], Allowance(100, ROOMY)) == Weighed(
        Cut(4, (0,), fold), tail=100, pinned=100, summary=230, left_out=2_050, freed=2_050 + 250 - 230
    )


@given(any_histories, st.integers(0, 30_000), st.integers(0, 60_000), st.data())
def test_any_history_is_cut_where_it_may_be(
    past: History, tail: int, messages: int, data: st.DataObject
) -> None:
    covered = data.draw(st.sets(st.sampled_from(allowed_cuts(past) or [0]), max_size=3)) - {0}
    folds = usable_folds(past, [fold_of(past, covers) for covers in sorted(covered)])
    deeper = deeper_cut(past, folds, Allowance(tail, messages))
    if deeper is None:
        return
    cut = deeper.cut
    assert cut.covers in allowed_cuts(past)
    assert all(cut.covers > fold.covers for fold in folds)
    assert cut.base is (folds[-1] if folds else None)
    assert deeper.tail == spoken_tokens(past, cut.covers, past.length)
    users = [number for number in range(past.length) if begins_with_a_user_message(past, number)]
    newest = users[-1:]
    assert all(number in cut.kept or number >= cut.covers for number in newest)
    assert all(number < cut.covers for number in cut.kept)


@given(any_histories, st.integers(0, 30_000))
def test_no_larger_tail_would_have_done(past: History, most: int) -> None:
    deeper = deeper_cut(past, [], Allowance(most, ROOMY))
    if deeper is None or deeper.tail > most:
        return
    tails = {cut: spoken_tokens(past, cut, past.length) for cut in allowed_cuts(past)}
    larger = [cut for cut, tokens in tails.items() if deeper.tail < tokens <= most]
    natural = [cut for cut in larger if begins_with_a_user_message(past, cut)]
    assert natural == []
    # One that begins otherwise is larger only where a user message has won, or where it leaves out nothing.
    assert begins_with_a_user_message(past, deeper.cut.covers) or all(cut == 1 for cut in larger)


def test_ten_thousand_messages_are_weighed_in_no_time_to_speak_of() -> None:
    past = chat("s " + "u c2 t t a " * 2_000 + "u")
    before = process_time()
    assert deeper_cut(past, [], Allowance(1_000, ROOMY)) is not None
    assert process_time() - before < 5


# Where everything is covered.


@pytest.mark.parametrize(
    ("line", "covers", "kept"),
    [
        ("", 0, ()),
        ("s", 0, ()),
        ("u", 1, (0,)),
        ("s u a u", 3, (2,)),
        ("u a", 2, (0, 1)),
        ("u c t", 3, (0, 1, 2)),
        ("u a u c3 t t t", 7, (2, 3, 4, 5, 6)),
        ("u c t c2 t t", 6, (0, 3, 4, 5)),
        ("u f r", 3, (0, 1, 2)),
        ("u f r f r s", 5, (0, 3, 4)),
        ("c t", 2, (0, 1)),
        ("u a a", 3, (0, 2)),
    ],
)
def test_the_last_group_is_kept_with_the_question_that_it_answers(
    line: str, covers: int, kept: tuple[int, ...]
) -> None:
    assert last_group(chat(line)) == Cut(covers, kept, None)


@given(any_histories)
def test_what_the_last_group_keeps_can_be_used(past: History) -> None:
    cut = last_group(past)
    assert cut.covers == past.length
    fold = fold_of(past, cut.covers, *cut.kept)
    assert usable_folds(past, [fold]) == ([fold] if past.length else [])


def test_a_fold_of_everything_is_usable_where_the_last_turn_and_the_newest_question_are_kept() -> None:
    past = chat("u a u c t")
    folds = {kept: fold_of(past, 5, *kept, id=str(kept)) for kept in [(), (2,), (4,), (2, 4), (2, 3, 4)]}
    assert usable_folds(past, folds.values()) == [folds[2, 3, 4], folds[2, 4]]


def test_a_fold_of_everything_stays_usable_as_the_conversation_goes_on() -> None:
    past = chat("u c t")
    fold = fold_of(past, 3, 0, 1, 2)
    assert usable_folds(past, [fold]) == [fold]
    for longer, usable in [("u c t a u", True), ("u c t c t", True), ("u c t x", False)]:
        assert usable_folds(chat(longer), [fold]) == ([fold] if usable else [])
