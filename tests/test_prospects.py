"""A line whose folds come to nothing begins no more of them, until it has gone on for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.prospects import MOST_FUTILE, MOST_UNUSED, WORTH_ITS_COST, Prospects

NEW = Prospects()


def begun(of: Prospects = NEW, prefix: bytes = b"a") -> Prospects:
    return of.began(prefix, 99.0)


def gone_on(of: Prospects, requests: int, *, reusing: bool = False) -> Prospects:
    for _ in range(requests):
        of = of.went_on(reusing=reusing)
    return of


def test_a_line_may_fold_until_two_folds_were_lost() -> None:
    once = begun().rewritten([b"b"], left_out=False)
    assert (NEW.may_start(), once.may_start(), once.making) == (True, True, None)
    assert not begun(once, b"b").rewritten([b"c"], left_out=False).may_start()


def test_a_rewriting_that_leaves_the_folded_part_alone_loses_nothing() -> None:
    assert begun().rewritten([b"a", b"b"], left_out=False) == begun()
    assert begun().rewritten([b"a", b"b"], left_out=True).unused == 0
    assert NEW.rewritten([b"a"], left_out=True) == NEW


def test_the_fold_that_is_being_made_is_begun_once_however_many_wait_for_it() -> None:
    assert begun(begun()).begun == 1
    assert begun(begun(), b"b").begun == 2


def test_whoever_leaves_turns_out_loses_all_that_was_made_since_they_were_there() -> None:
    both = begun(gone_on(begun(), 3, reusing=True), b"b")
    assert both.rewritten([b"c"], left_out=True).unused == 2
    assert both.rewritten([b"c"], left_out=False).unused == 1


def test_an_edit_now_and_then_does_no_harm_to_folds_that_are_used() -> None:
    prospects = NEW
    for number in range(9):
        prospects = begun(prospects, b"%d" % number)
        prospects = gone_on(prospects, 3, reusing=True).rewritten([b"other"], left_out=False)
        assert prospects.may_start()


def test_trimming_now_and_then_does() -> None:
    prospects = NEW
    for number in range(MOST_UNUSED):
        assert prospects.may_start()
        prospects = begun(prospects, b"%d" % number)
        prospects = gone_on(prospects, WORTH_ITS_COST - 1, reusing=True).rewritten([b"x"], left_out=True)
    assert not prospects.may_start()


def test_a_line_that_goes_on_for_a_while_is_trusted_again() -> None:
    lost = begun().rewritten([b"b"], left_out=True)
    paused = begun(lost, b"b").rewritten([b"c"], left_out=True)
    assert not gone_on(paused, WORTH_ITS_COST - 1, reusing=True).may_start()
    assert gone_on(paused, WORTH_ITS_COST).may_start()
    # In a row: what is left out meanwhile ends it.
    halfway = gone_on(paused, WORTH_ITS_COST - 1).rewritten([b"d"], left_out=True)
    assert not gone_on(halfway, 1).may_start()


def test_folds_that_free_too_little_end_it_until_one_frees_enough() -> None:
    prospects = NEW
    for _ in range(MOST_FUTILE):
        assert prospects.may_start()
        prospects = prospects.folded(enough=False)
    assert not prospects.may_start()
    assert prospects.folded(enough=True).may_start()


def test_what_is_told_of_a_name_counts_for_lines_that_were_long_when_they_were_first_seen() -> None:
    doubted = NEW.doubtful()
    assert NEW.may_start(MOST_UNUSED)
    assert doubted.may_start(MOST_UNUSED - 1)
    assert not doubted.may_start(MOST_UNUSED)
    assert not gone_on(doubted, 1).may_start(MOST_UNUSED)
    assert begun(doubted).may_start(MOST_UNUSED)
    assert gone_on(doubted, WORTH_ITS_COST).may_start(MOST_UNUSED)
    assert begun().doubtful().may_start(MOST_UNUSED)  # of this one more is known


EVENTS = st.sampled_from(["begin", "go on", "reuse"])


@given(st.lists(EVENTS, max_size=80))
def test_a_client_that_resends_all_of_it_is_never_mistaken(events: list[str]) -> None:
    prospects, chain = NEW, [b"0"]
    for event in events:
        assert prospects.may_start()
        chain.append(b"%d" % len(chain))
        if event == "begin":
            prospects = prospects.began(chain[-2], 99.0)
        else:
            prospects = prospects.went_on(reusing=event == "reuse")
