from __future__ import annotations

import json
from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.budget import Policy as Shares
from proxy.budget import Window, budget
from proxy.counting.anchors import Basis, Count
from proxy.fold.assemble import assembled
from proxy.fold.history import INSTRUCTING, History, Turn, history
from proxy.fold.plan import FoldPolicy, Keep, Make, Reuse, plan
from proxy.fold.tail import Allowance, Cut, deeper_cut
from tests.fold.chats import TENANT, any_histories, body_of, chat, groups, joined, request_of, turns
from tests.fold.lanes import EIGHT_THOUSAND, Lane, Request, fold_of, situation
from tests.fold.validator import faults, user_speaks_first

# Of a window of 10,000: room 9,400, hard 8,930, soft 7,144, refused past 9,900.
ALLOWED = budget(Window(10_000), 100, Shares())
ASSUMED = budget(Window(10_000, assumed=True), 100, Shares())


def test_a_request_below_the_triggers_is_kept() -> None:
    assert plan(situation(chat("u:7000 a:100 u:44"), ALLOWED)) == Keep()


def test_past_the_soft_trigger_a_fold_is_prepared() -> None:
    assert plan(situation(chat("u:7000 a:100 u:45"), ALLOWED)) == Keep(Cut(2, (), None))


def test_past_the_hard_trigger_it_is_made_while_the_request_goes_out() -> None:
    past = chat("u:8900 a:30 u:1")
    assert plan(situation(past, ALLOWED)) == Make(Cut(2, (), None), None, must=False)


def test_what_does_not_fit_the_window_has_to_wait_for_its_fold() -> None:
    assert plan(situation(chat("u:8900 a:900 u:100"), ALLOWED)) == Make(Cut(2, (), None), None, must=False)
    assert plan(situation(chat("u:8900 a:900 u:101"), ALLOWED)) == Make(Cut(2, (), None), None, must=True)


def test_by_what_a_request_may_be_at_most_it_is_folded_and_by_what_it_is_it_fits() -> None:
    now = situation(chat("u:5000 a u"), ALLOWED)
    unsure = replace(now, size=Count(5_020, 2_125, Basis.COLD))
    doubtful = replace(now, size=Count(9_900, 3_000, Basis.COLD))
    assert plan(now) == Keep()
    assert plan(unsure) == Keep(Cut(2, (), None))
    assert plan(doubtful) == Make(Cut(2, (), None), None, must=False)


def test_a_fold_that_is_ready_waits_until_it_is_needed() -> None:
    below, past = chat("u:8000 a:100 u:100"), chat("u:8000 a:100 u:100 a:700 u:100")
    fold = fold_of(below, 2)
    assert plan(situation(below, ALLOWED, fold)) == Keep()
    assert plan(situation(past, ALLOWED, fold)) == Reuse(fold)


def test_of_several_the_one_that_keeps_the_most_is_taken() -> None:
    past = chat("u:3000 a u:3000 a u:3000 a u:3000 a u")
    folds = [fold_of(past, covers) for covers in (6, 4, 2)]
    assert plan(situation(past, ALLOWED, *folds)) == Reuse(folds[1])


def test_the_lanes_last_fold_stays_while_it_is_not_past_the_trigger() -> None:
    past = chat("u:3000 a u:3000 a u:100")
    shallow, deep = fold_of(past, 2), fold_of(past, 4)
    assert plan(situation(past, ALLOWED, shallow, deep)) == Keep()
    assert plan(situation(past, ALLOWED, shallow, deep, last=deep.id)) == Reuse(deep)
    assert plan(situation(past, ALLOWED, shallow, deep, last=shallow.id)) == Reuse(shallow)
    grown = chat("u:3000 a u:3000 a u:100 a:6000 u")
    assert plan(situation(grown, ALLOWED, shallow, deep, last=shallow.id)) == Reuse(deep)


def test_a_last_fold_that_is_of_another_history_is_not_in_use() -> None:
    assert plan(situation(chat("u a u"), ALLOWED, last="fold-of-an-edited-branch")) == Keep()


def test_after_a_change_to_a_smaller_model_the_shallowest_fold_that_does_is_taken() -> None:
    past = chat("u:3000 a u:3000 a u:3000 a u:2000 a u:900")
    folds = [fold_of(past, covers) for covers in (2, 4, 6, 8)]
    small = budget(Window(5_000), 100, Shares())
    assert plan(situation(past, small, *folds, last=folds[0].id)) == Reuse(folds[2])


def test_a_fold_in_use_that_is_getting_full_is_followed_by_a_deeper_one() -> None:
    past = chat("u:900 a u:3000 a:3500 u:600")
    fold = fold_of(past, 2)
    assert plan(situation(past, ALLOWED, fold, last=fold.id)) == Reuse(fold, Cut(4, (), fold))
    ready = fold_of(past, 4)
    assert plan(situation(past, ALLOWED, fold, ready, last=fold.id)) == Reuse(fold)


def test_past_the_trigger_with_every_fold_the_last_one_is_sent_meanwhile() -> None:
    past = chat("u:900 a u:3000 a:5800 u:100")
    fold = fold_of(past, 2)
    assert plan(situation(past, ALLOWED, fold, last=fold.id)) == Make(Cut(4, (), fold), fold, must=False)


def test_where_no_fold_makes_it_fit_the_smallest_is_at_hand() -> None:
    past = chat("u:900 a:900 u:3000 a:9800 u:100")
    shallow, deep = fold_of(past, 1, 0), fold_of(past, 2)
    assert plan(situation(past, ALLOWED, shallow, deep)) == Make(Cut(4, (), deep), deep, must=True)


@pytest.mark.parametrize(
    ("min_tokens", "prepared"), [(2_000, False), (1_900, True), (1_901, False), (9_999, False)]
)
def test_below_the_floor_nothing_is_folded(min_tokens: int, prepared: bool) -> None:
    early = budget(Window(10_000), 100, Shares(threshold=0.1))
    policy = FoldPolicy(min_tokens=min_tokens, retain_tokens=100)
    found = plan(situation(chat("u:1700 a:100 u:100"), early, policy=policy))
    assert found == (Make(Cut(2, (), None), None, must=False) if prepared else Keep())


def test_the_floor_is_never_more_than_half_of_the_room() -> None:
    small = budget(Window(2_000), 100, Shares(threshold=0.5))  # a room of 1,800
    policy = FoldPolicy(retain_tokens=100)
    assert plan(situation(chat("u:780 a:19 u:100"), small, policy=policy)) == Keep()
    assert plan(situation(chat("u:780 a:20 u:100"), small, policy=policy)) == Keep(Cut(2, (), None))


def test_a_fold_that_frees_too_little_is_not_made() -> None:
    # A tenth of the room is 940, and a summary takes 200.
    assert plan(situation(chat("s:6500 u:1100 a:39 u:10"), ALLOWED)) == Keep()
    assert plan(situation(chat("s:6500 u:1100 a:40 u:10"), ALLOWED)) == Keep(Cut(2, (), None))


def test_neither_floor_nor_progress_hold_up_what_must_be_folded() -> None:
    past = chat("s:9700 u:100 a:50 u:100")
    assert plan(situation(past, ALLOWED, policy=FoldPolicy(min_tokens=99_999))) == Make(
        Cut(2, (), None), None, must=True
    )


def test_where_none_may_be_started_only_what_must_be_folded_is() -> None:
    quiet = FoldPolicy(may_start=False)
    assert plan(situation(chat("u:7000 a:500 u"), ALLOWED, policy=quiet)) == Keep()
    assert plan(situation(chat("u:9000 a:500 u"), ALLOWED, policy=quiet)) == Keep()
    assert plan(situation(chat("u:9900 a:500 u"), ALLOWED, policy=quiet)) == Make(
        Cut(2, (), None), None, must=True
    )
    past = chat("u:9900 a:500 u a u")
    assert plan(situation(past, ALLOWED, fold_of(past, 2), policy=quiet)) == Reuse(fold_of(past, 2))


def test_a_window_that_is_only_assumed_starts_nothing() -> None:
    assert plan(situation(chat("u:90000 a u"), ASSUMED)) == Keep()


def test_where_nothing_can_be_cut_the_upstream_has_the_last_word() -> None:
    assert plan(situation(chat("s u:90000"), ALLOWED)) == Keep()
    assert plan(situation(chat("s u c t:90000"), ALLOWED)) == Keep()
    past = chat("u:900 a u:90000")
    assert plan(situation(past, ALLOWED, fold_of(past, 2))) == Reuse(fold_of(past, 2))


def test_a_fold_whose_cut_a_late_result_has_forbidden_is_not_used() -> None:
    past = chat("u:9000 c2 t:400 u a t u")
    assert plan(situation(past, ALLOWED, fold_of(past, 3))) == Make(Cut(6, (), None), None, must=False)


def test_a_fold_made_for_a_branch_that_went_on_with_a_user_message_is_not_used_where_none_follows() -> None:
    """It has not kept the one that the tail answers."""
    line = "u:100 a:8000 {} a:900 c t c t"
    fold = fold_of(chat(line.format("u")), 2)
    other = chat(line.format("a"))
    assert other.chain[2] == fold.prefix
    assert plan(situation(other, ALLOWED, fold)) == Make(Cut(3, (0,), None), None, must=False)
    pinned = fold_of(other, 2, 0)
    assert plan(situation(other, ALLOWED, pinned)) == Reuse(pinned)
    assert plan(situation(chat(line.format("u")), ALLOWED, pinned)) == Reuse(pinned)


def test_the_tail_takes_no_more_than_half_of_the_room() -> None:
    greedy = FoldPolicy(retain_tokens=99_999)
    past = chat("u:3000 a:1300 u:3000 a:1701 u:3000")
    assert plan(situation(past, ALLOWED, policy=greedy)) == Make(Cut(4, (), None), None, must=True)
    past = chat("u:3000 a:1300 u:3000 a:1699 u:1")
    assert plan(situation(past, ALLOWED, policy=greedy)) == Make(Cut(2, (), None), None, must=False)


def test_tools_and_instructions_take_from_the_tail() -> None:
    past = chat("s:3000 u:2000 a:2000 u:300 a:300 u:300")
    # 8,930 less a tenth of the room, the instructions and a summary of 400 are 4,590.
    assert plan(situation(past, ALLOWED, fixed=3_690)) == Make(Cut(2, (), None), None, must=True)
    assert plan(situation(past, ALLOWED, fixed=3_691)) == Make(Cut(4, (), None), None, must=True)


# A conversation as it grows; at each step the client may go back and say something else.


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[list[Turn], bool]]:
    """What each request says, and whether it goes on from the one before it."""
    parts = draw(st.lists(groups(), min_size=1, max_size=3))
    requests = [(joined(parts), True)]
    for added in draw(st.lists(st.lists(groups(), min_size=1, max_size=4), min_size=3, max_size=20)):
        edited = draw(st.integers(0, 9)) == 0
        if edited:
            parts = parts[: draw(st.integers(0, len(parts) - 1))]
        parts = [*parts, *added]
        requests.append((joined(parts), not edited))
    return requests


windows = st.sampled_from([2_000, 8_000, 8_000, 32_000])
policies = st.builds(FoldPolicy, retain_tokens=st.sampled_from([0, 300, 1_000, 5_000]))


@given(conversations(), windows, policies, st.sampled_from([0, 700]))
def test_whatever_is_sent_is_valid_and_has_all_that_must_be_kept(
    requests: list[tuple[list[Turn], bool]], window: int, policy: FoldPolicy, fixed: int
) -> None:
    lane = Lane(budget(Window(window), 100, Shares()), fixed, policy)
    for said, _ in requests:
        past = history(said, TENANT)
        sent = lane.send(past)
        before, after = json.loads(body_of(past))["messages"], json.loads(sent.body)["messages"]
        assert faults(before) == faults(after) == []
        assert user_speaks_first(after) or not user_speaks_first(before)
        assert _instructions(past) == [raw for raw in sent.messages if _is_the_clients_instruction(raw, sent)]
        newest = [turn.raw for turn in said if turn.role == "user"][-1:]
        assert all(raw in sent.messages for raw in newest)


def _instructions(past: History) -> list[bytes]:
    return [turn.raw for turn in past.turns if turn.instructs]


def _is_the_clients_instruction(raw: bytes, sent: Request) -> bool:
    summaries = sent.fold.messages if sent.fold else ()
    return json.loads(raw)["role"] in INSTRUCTING and raw not in summaries


@given(conversations(), windows, policies, st.sampled_from([0, 700]))
def test_it_fits_the_window_or_there_was_nothing_more_to_fold(
    requests: list[tuple[list[Turn], bool]], window: int, policy: FoldPolicy, fixed: int
) -> None:
    lane = Lane(budget(Window(window), 100, Shares()), fixed, policy)
    for said, _ in requests:
        past = history(said, TENANT)
        sent = lane.send(past)
        further = deeper_cut(past, lane.known(past), Allowance(0, 0))
        assert lane.allowed.fits(sent.size) or further is None
        assert sent.fold is not None or sent.body == body_of(past)


@given(conversations(), windows, policies)
def test_what_was_sent_is_the_beginning_of_what_is_sent_next_until_a_fold_or_an_edit(
    requests: list[tuple[list[Turn], bool]], window: int, policy: FoldPolicy
) -> None:
    lane = Lane(budget(Window(window), 100, Shares()), policy=policy)
    previous: Request | None = None
    for said, goes_on in requests:
        sent = lane.send(history(said, TENANT))
        if previous is not None and goes_on and sent.fold == previous.fold:
            assert sent.messages[: len(previous.messages)] == previous.messages
        if previous is not None and goes_on and sent.fold != previous.fold:
            # And it never goes back to a shallower one.
            assert sent.fold is not None
            assert sent.fold.covers > (previous.fold.covers if previous.fold else 0)
        previous = sent


@given(any_histories, st.lists(st.integers(0, 30), max_size=3), st.integers(100, 40_000), policies)
def test_any_history_has_a_plan_and_always_the_same(
    past: History, covered: list[int], window: int, policy: FoldPolicy
) -> None:
    folds = [fold_of(past, covers) for covers in set(covered) if covers <= past.length]
    allowed = budget(Window(window), 100, Shares())
    last = folds[0].id if folds else None
    now = situation(past, allowed, *folds, last=last, policy=policy)
    again = situation(past, allowed, *reversed(folds), last=last, policy=policy)
    assert plan(now) == plan(again)


@pytest.mark.parametrize(
    "turn", ["u:100 c:50 t:100 a:50", "u:150 a:150", "u:20 c2:80 t:50 t:50 c:20 t:50 a:30", "u:300 a:300"]
)
def test_forty_turns_at_a_window_of_8_000_make_at_most_five_folds(turn: str) -> None:
    lane = Lane(EIGHT_THOUSAND)
    said = turns("s:400 " + f"{turn} " * 40)
    previous: list[bytes] = []
    reused = total = 0
    for end in range(2, len(said) + 1):
        if said[end - 1].role == "assistant" or (said[end : end + 1] and said[end].role == "tool"):
            continue  # the client has nothing to ask yet
        sent = lane.send(history(said[:end], TENANT))
        assert not lane.allowed.past_hard(sent.size)
        reused += len(previous) if sent.messages[: len(previous)] == previous else 0
        total += len(previous)
        previous = sent.messages
    assert 1 <= lane.made <= 5
    assert reused / total > 0.8


def test_an_agent_works_two_hundred_steps_on_one_message() -> None:
    lane = Lane(EIGHT_THOUSAND)
    said = turns("s:400 d:50 u:120 " + "c:60 t:400 " * 200)
    for end in range(3, len(said) + 1, 2):
        sent = lane.send(history(said[:end], TENANT))
        assert not lane.allowed.past_hard(sent.size)
        assert faults([json.loads(raw) for raw in sent.messages]) == []
        assert {turn.raw for turn in said[:3]} <= set(sent.messages)
    assert lane.made <= 25  # of 92,000 tokens about 4,000 each: what lies between a tail and the soft trigger


def test_a_thousand_messages_are_planned_and_assembled_in_under_a_tenth_of_a_second() -> None:
    past = chat("s " + "u:50 c2:50 t:50 t:50 a:50 " * 200)
    request = request_of(past)
    before = process_time()
    found = plan(situation(past, EIGHT_THOUSAND))
    assert isinstance(found, Make)
    fold = fold_of(past, found.cut.covers, *found.cut.kept)
    assert assembled(request, past, fold) is not None
    assert process_time() - before < 0.1
