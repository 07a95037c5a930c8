from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.anchors import Anchor, Basis, Known, Lesson, Opening, count, lesson
from proxy.counting.calibration import first_calibration
from proxy.counting.estimate import NOTHING, Estimate
from proxy.counting.prompt import Chain, Message, Outside, Prompt, sums
from proxy.usage import Usage

TENANT = bytes(16)
PLAIN = first_calibration(1.0)
FRAMING = 4
ROLES = {"u": "user", "a": "assistant", "t": "tool"}


def text(tokens: int, **others: int) -> Estimate:
    return Estimate(FRAMING, tokens, **others)


def outside(tokens: int = 0, name: bytes = b"outside") -> Outside:
    return Outside(name, Estimate(tokens=tokens))


def prompt(written: str, beside: Outside | None = None) -> Prompt:
    """`u100 a20` is a user message of 100 tokens and an answer of 20."""
    messages = [Message(word.encode(), ROLES[word[0]], text(int(word[1:]))) for word in written.split()]
    return prompt_of(messages, beside)


def prompt_of(messages: Sequence[Message], beside: Outside | None = None) -> Prompt:
    chain = Chain(TENANT)
    for message in messages:
        chain.add(message)
    return Prompt(chain.values, sums(messages), chain.roles, beside or outside())


def anchored(before: Prompt, usage: Usage, *, choices: int = 1) -> Known:
    """What is known of whatever goes on from `before` once that was billed."""
    cold = Known(PLAIN)
    learned = lesson(before, count(before, cold), cold, usage, choices=choices)
    assert learned.anchor is not None
    return Known(PLAIN, learned.anchor, before.length, learned.opening)


# Counting.


def test_nothing_learned_is_our_own_estimate_with_a_wide_margin() -> None:
    found = count(prompt("u1000", outside(500)), Known(first_calibration(1.2)))
    assert (found.basis, found.tokens) == (Basis.COLD, round(1.2 * 1500) + FRAMING)
    assert found.uncertainty > 0.2 * found.tokens


def test_what_was_billed_is_counted_exactly() -> None:
    before = prompt("u100 a20 u30")
    found = count(before, anchored(before, Usage(777, 40)))
    assert (found.tokens, found.uncertainty, found.basis) == (777, 0, Basis.ANCHORED)


def test_only_what_came_after_the_bill_is_estimated() -> None:
    known = anchored(prompt("u100"), Usage(500, 0))
    found = count(prompt("u100 a20 u30"), known)
    assert (found.exact, found.estimated) == (500, text(20) + text(30))
    assert found.tokens == 500 + 20 + 30 + 2 * FRAMING
    assert 0 < found.uncertainty < 100


def test_the_answer_costs_its_own_bill_when_it_is_resent() -> None:
    known = anchored(prompt("u100"), Usage(500, 26))
    found = count(prompt("u100 a20 u30"), known)
    assert found.exact == 526
    assert found.estimated == text(30) + Estimate(answers=1)


def test_reasoning_is_not_resent() -> None:
    known = anchored(prompt("u100"), Usage(500, 5026, reasoning=5000))
    assert count(prompt("u100 a20 u30"), known).exact == 526


def test_of_several_choices_nobody_knows_which_is_resent() -> None:
    known = anchored(prompt("u100"), Usage(500, 60), choices=3)
    assert count(prompt("u100 a20 u30"), known).exact == 500


def test_a_begun_answer_is_resent_together_with_its_beginning() -> None:
    known = anchored(prompt("u100 a5"), Usage(500, 20))
    assert known.anchor is not None
    assert known.anchor.answer == 0


def test_an_answer_that_was_shortened_before_it_was_resent_is_estimated() -> None:
    known = anchored(prompt("u100"), Usage(500, 4000))
    found = count(prompt("u100 a20 u30"), known)
    assert (found.exact, found.estimated) == (500, text(20) + text(30))


def test_what_follows_a_bill_is_no_answer_where_a_user_wrote_it() -> None:
    known = anchored(prompt("u100"), Usage(500, 26))
    assert count(prompt("u100 u20"), known).exact == 500


def test_changed_instructions_correct_the_bill_by_the_estimated_difference() -> None:
    known = anchored(prompt("u100", outside(1000)), Usage(1500, 0))
    longer = count(prompt("u100 u30", outside(1200, b"longer")), known)
    shorter = count(prompt("u100 u30", outside(900, b"shorter")), known)
    same = count(prompt("u100 u30", outside(1000)), known)
    assert (longer.tokens - same.tokens, shorter.tokens - same.tokens) == (200, -100)
    assert longer.uncertainty > same.uncertainty


def test_a_clock_in_the_instructions_costs_nothing() -> None:
    known = anchored(prompt("u100", outside(1000, b"at noon")), Usage(1500, 0))
    later = count(prompt("u100 u30", outside(1000, b"a minute past")), known)
    same = count(prompt("u100 u30", outside(1000, b"at noon")), known)
    assert (later.tokens, later.uncertainty) == (same.tokens, same.uncertainty)


def test_less_than_nothing_is_never_counted() -> None:
    known = anchored(prompt("u100", outside(3000)), Usage(1900, 0))
    found = count(prompt("u100", outside(0, b"gone")), known)
    assert found.tokens == 0
    assert found.at_most > 0


def test_an_opening_is_known_from_other_conversations() -> None:
    found = count(prompt("u100", outside(1000)), Known(PLAIN, opening=Opening(1400, 5)))
    assert (found.basis, found.tokens) == (Basis.OPENING, 1400 + 100 + FRAMING)


def test_a_doubtful_opening_makes_a_doubtful_count() -> None:
    sure, unsure = (count(prompt("u100"), Known(PLAIN, opening=Opening(1400, d))) for d in (5, 300))
    assert unsure.uncertainty == sure.uncertainty + 590


@pytest.mark.parametrize("known", [Known(PLAIN), Known(PLAIN, opening=Opening(90, 1))])
def test_without_a_tokenizer_the_margin_is_wider_and_the_count_says_so(known: Known) -> None:
    roughly = count(prompt_of([Message(b"one", "user", text(1000, rough=1))]), known)
    exactly = count(prompt("u1000"), known)
    assert roughly.basis is Basis.ROUGH
    assert roughly.uncertainty >= exactly.uncertainty + 500


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_the_more_is_estimated_the_less_sure_the_count(one: int, more: int) -> None:
    known = anchored(prompt("u100"), Usage(500, 0))
    little, much = (count(prompt(f"u100 u{size}"), known) for size in (one, one + more))
    assert little.tokens <= much.tokens
    assert little.uncertainty <= much.uncertainty


# Learning.


def learned(written: str, billed: int, known: Known, beside: Outside | None = None) -> Lesson:
    asked = prompt(written, beside)
    return lesson(asked, count(asked, known), known, Usage(billed, 0), choices=1)


def test_a_first_bill_is_an_anchor_and_teaches_the_opening_but_no_weights() -> None:
    taught = learned("u100", 1600, Known(PLAIN), outside(1000))
    assert taught.anchor == Anchor(1600, b"outside", Estimate(tokens=1000))
    assert taught.opening is not None
    assert taught.opening.tokens == 1600 - 100 - FRAMING
    assert taught.calibration is None


def test_the_next_bill_of_a_conversation_teaches_the_weights() -> None:
    known = anchored(prompt("u100"), Usage(500, 0))
    taught = learned("u100 u1000", 500 + 1300, known)
    assert taught.calibration is not None
    assert 1000 < taught.calibration.tokens(Estimate(tokens=1000)) < 1300


def test_an_anchor_far_below_its_estimate_is_refused_and_teaches_nothing_else() -> None:
    assert learned("u4000 a500 u100", 2048, Known(PLAIN)) == Lesson(truncated=True)
    known = anchored(prompt("u4000"), Usage(4000, 0))
    assert learned("u4000 u3000", 4096, known) == Lesson(truncated=True)


@pytest.mark.parametrize(
    ("spoken", "billed"),
    [
        ("u1000 a500 u600", 600),  # all but the last message was cached
        ("u1000 a500 u600", 1150),  # all but the answer and what came after it
        ("u3000 a500 t1000 a30 t800", 810),  # of an agent's steps
    ],
)
def test_a_bill_for_what_was_new_alone_accuses_nobody_and_teaches_nothing(spoken: str, billed: int) -> None:
    """Some servers do not bill what they had in their cache."""
    assert learned(spoken, billed, Known(PLAIN)) == Lesson()


def test_a_bill_for_all_but_a_cached_opening_accuses_nobody() -> None:
    asked = prompt("u700", outside(3000))
    known = Known(PLAIN)
    assert lesson(asked, count(asked, known), known, Usage(710, 0), choices=1) == Lesson()


def test_what_was_cached_is_counted_where_it_is_billed_beside_the_rest() -> None:
    asked, known = prompt("u4000 a500 u100"), Known(PLAIN)
    taught = lesson(asked, count(asked, known), known, Usage(1100, 0, cached=3500), choices=1)
    assert taught.anchor is not None
    assert (taught.anchor.billed, taught.truncated) == (4600, False)


def test_a_short_prompt_is_never_taken_for_truncated() -> None:
    assert not learned("u400", 100, Known(PLAIN)).truncated


def test_an_image_that_costs_nothing_here_is_no_truncation() -> None:
    asked = prompt_of([Message(b"image", "user", Estimate(fixed=50_000, tokens=600))])
    known = Known(PLAIN)
    assert not lesson(asked, count(asked, known), known, Usage(700, 0), choices=1).truncated


def test_what_was_counted_without_a_tokenizer_accuses_nobody_and_teaches_no_weights() -> None:
    asked = prompt_of([Message(b"one", "user", text(4000, rough=1))])
    known = Known(PLAIN, Anchor(10, b"outside", NOTHING))
    taught = lesson(asked, count(asked, known), known, Usage(1000, 0), choices=1)
    assert not taught.truncated
    assert (taught.opening, taught.calibration) == (None, None)
    assert taught.anchor is not None


def with_media(tokens: int, beside: Outside | None = None, fixed: int = 0) -> Prompt:
    """A file, and a text of so many tokens about it."""
    return prompt_of([Message(b"media", "user", text(tokens, media=1) + Estimate(fixed))], beside)


def billed_for(asked: Prompt, billed: int, known: Known) -> Lesson:
    return lesson(asked, count(asked, known), known, Usage(billed, 0), choices=1)


@pytest.mark.parametrize("known", [Known(PLAIN), Known(PLAIN, opening=Opening(12, 1))])
def test_what_a_file_costs_is_never_taken_for_the_cost_of_the_instructions(known: Known) -> None:
    taught = billed_for(with_media(10), 30_000, known)
    assert taught.anchor is not None
    assert taught.opening is None


def test_what_an_image_costs_beside_its_formula_teaches_no_weights() -> None:
    known = anchored(prompt("u100"), Usage(500, 0))
    said = Message(b"u100", "user", text(100))
    asked = prompt_of([said, Message(b"image", "user", text(50, media=1) + Estimate(765))])
    taught = billed_for(asked, 3_000, known)
    assert taught.anchor is not None
    assert taught.calibration is None


def test_a_text_beside_media_that_was_cut_is_still_found_out() -> None:
    assert billed_for(with_media(4_000, fixed=765), 2_048, Known(PLAIN)).truncated


def test_a_bill_for_far_more_than_anybody_hides_teaches_no_opening() -> None:
    assert learned("u100", 30_000, Known(PLAIN), outside(10)).opening is not None
    assert learned("u100", 90_000, Known(PLAIN), outside(20_000)).opening is not None
    assert learned("u100", 90_000, Known(PLAIN), outside(10)).opening is None


@pytest.mark.parametrize("billed", [0, -1])
def test_a_bill_of_nothing_is_no_bill(billed: int) -> None:
    assert learned("u100", billed, Known(PLAIN)) == Lesson()


def opening_after(bills: list[int]) -> Opening:
    """Conversations that begin with the same instructions and a message of 100 tokens."""
    opening = None
    for billed in bills:
        opening = learned("u100", billed, Known(PLAIN, opening=opening), outside(1000)).opening
    assert opening is not None
    return opening


def test_an_opening_grows_sure_where_bills_agree() -> None:
    once, often = opening_after([1600]), opening_after([1600] * 10)
    assert often.tokens == pytest.approx(once.tokens)
    assert often.deviation < once.deviation / 3


def test_an_opening_that_surprised_is_corrected_and_in_doubt_for_a_while() -> None:
    settled = opening_after([1600] * 10)
    surprised = opening_after([1600] * 10 + [2600])
    forgotten = opening_after([1600] * 10 + [2600] * 12)
    assert surprised.tokens == pytest.approx(settled.tokens + 1000, rel=0.05)
    assert surprised.deviation > 400
    assert forgotten.deviation < surprised.deviation / 4
    assert forgotten.tokens == pytest.approx(settled.tokens + 1000, rel=0.01)


def test_two_sets_of_hidden_tools_behind_the_same_instructions_stay_in_doubt() -> None:
    between = opening_after([1600, 2600] * 10)
    assert between.deviation > 500


def test_an_opening_is_not_learned_from_the_middle_of_a_conversation_once_it_is_known() -> None:
    known = anchored(prompt("u100", outside(1000)), Usage(1600, 0))
    assert learned("u100 u9000", 12_000, known, outside(1000)).opening is None
