"""Counting from where the upstream has spoken: what it billed for a beginning, plus an estimate of the rest.

Pure: which anchors are known comes in, what is to be remembered goes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

import msgspec

from proxy.counting.calibration import Calibration
from proxy.counting.estimate import NOTHING, Estimate
from proxy.counting.prompt import ANSWERED_BY, Prompt
from proxy.usage import Usage

# An estimate of which we are this unsure is wider than any deviation that was learned.
_ROUGH = 0.25
_UNSEEN_FRAMING = 0.1
_DEVIATIONS = 2.0

# Billed for less than this share of what was surely sent: the server has cut the prompt and said nothing.
_TRUNCATED_BELOW = 0.6
_SURELY_SENT = 500

# How far a bill for the new part alone may lie from its estimate.
_NEWS_OFF = 0.25
_NEWS_SLACK = 50

# A resent answer that differs from its own bill by more than this was not resent as it was.
_ANSWER_FACTOR = 2.0
_ANSWER_SLACK = 30
_AN_ANSWER = Estimate(answers=1)

# A gateway may put instructions and tools of its own in front of every request, but hardly more tokens than
# this beside so many times what is seen of them. A larger bill was for something else, such as a search.
_MOST_HIDDEN = 32_768
_MOST_UNDERRATED = 4

# How fast an opening's doubt follows what is seen of it, and so how soon a surprise is forgotten.
_SPREAD_RATE = 0.25


class Basis(StrEnum):
    """What a count stands on."""

    ANCHORED = "anchored"  # a bill for the beginning of this very conversation
    OPENING = "opening"  # bills of other conversations with the same instructions and tools
    COLD = "cold"  # our own estimate alone
    ROUGH = "rough"  # an estimate made without the tokenizer


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """What the upstream billed for a chain of messages, and beside which instructions and tools."""

    billed: int
    outside: bytes
    outside_estimate: Estimate
    answer: int = 0  # what the answer will cost when it is resent; 0 where that is not known


class Opening(msgspec.Struct, frozen=True, array_like=True):
    """What instructions and tools cost by themselves, as far as bills of whole requests can tell."""

    tokens: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known for one request: the anchor at its longest beginning, the opening, the weights."""

    calibration: Calibration
    anchor: Anchor | None = None
    anchored_at: int = 0
    opening: Opening | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens of a request, and by how many they may be wrong."""

    tokens: int
    uncertainty: int
    basis: Basis
    exact: int = 0  # the part of it that was billed before …
    estimated: Estimate = NOTHING  # … and what the rest was estimated from

    @property
    def at_most(self) -> int:
        return self.tokens + self.uncertainty


def count(prompt: Prompt, known: Known) -> Count:
    if known.anchor is not None:
        return _from_anchor(prompt, known, known.anchor)
    if known.opening is not None:
        exact, doubt = known.opening.tokens, known.opening.deviation
        return _counted(round(exact), prompt.sums[-1], doubt, Basis.OPENING, known.calibration)
    # How a provider frames tools and instructions is its own affair until the first bill.
    doubt = _UNSEEN_FRAMING * prompt.outside.estimate.plain
    return _counted(0, prompt.estimate, doubt, Basis.COLD, known.calibration)


def _from_anchor(prompt: Prompt, known: Known, anchor: Anchor) -> Count:
    at, exact, doubt = known.anchored_at, anchor.billed, 0.0
    added = prompt.since(at)
    if _answer_was_resent(prompt, at, anchor.answer, known.calibration):
        added += _AN_ANSWER - prompt.message(at)
        exact += anchor.answer
    if anchor.outside != prompt.outside.digest:
        changed = prompt.outside.estimate - anchor.outside_estimate
        added += changed
        doubt = _UNSEEN_FRAMING * abs(changed.plain)
    return _counted(exact, added, doubt, Basis.ANCHORED, known.calibration)


def _answer_was_resent(prompt: Prompt, at: int, answer: int, calibration: Calibration) -> bool:
    if not answer or at >= prompt.length or prompt.roles[at] != ANSWERED_BY:
        return False
    estimated = calibration.tokens(prompt.message(at))
    return answer / _ANSWER_FACTOR - _ANSWER_SLACK <= estimated <= answer * _ANSWER_FACTOR + _ANSWER_SLACK


def _counted(exact: int, estimate: Estimate, doubt: float, basis: Basis, calibration: Calibration) -> Count:
    estimated = calibration.tokens(estimate)
    doubt += calibration.deviation(estimate)
    if estimate.rough:
        doubt += _ROUGH * abs(estimated)
        basis = Basis.ROUGH
    tokens = max(0, round(exact + estimated))
    return Count(tokens, round(_DEVIATIONS * doubt), basis, exact, estimate)


# After the answer.


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one bill teaches. Nothing but `truncated` is to be believed of a prompt that was cut."""

    truncated: bool = False
    anchor: Anchor | None = None
    opening: Opening | None = None
    calibration: Calibration | None = None


def lesson(prompt: Prompt, counted: Count, known: Known, usage: Usage, *, choices: int) -> Lesson:
    if usage.prompt <= 0:
        return Lesson()
    billed = usage.prompt
    if _is_far_too_little(prompt, billed, known.calibration):
        # Some gateways bill what was read from a cache beside the rest, and some servers do not bill it.
        billed += usage.cached
        if _is_far_too_little(prompt, billed, known.calibration):
            return Lesson(truncated=not _is_what_was_new(prompt, known, usage.prompt))
    outside = prompt.outside
    anchor = Anchor(billed, outside.digest, outside.estimate, _resent_answer(prompt, usage, choices))
    wiser = known.calibration
    if counted.basis is Basis.ANCHORED:
        wiser = wiser.learned(counted.estimated, billed - counted.exact)
    return Lesson(
        anchor=anchor,
        opening=_opening(prompt, counted, known, billed),
        calibration=wiser if wiser is not known.calibration else None,
    )


def _is_far_too_little(prompt: Prompt, billed: int, calibration: Calibration) -> bool:
    """Judged by text alone: what an image costs is for each server to say."""
    text = prompt.estimate
    surely_sent = calibration.tokens(Estimate(0, text.tokens, text.words, text.digits))
    return not text.rough and surely_sent > _SURELY_SENT and billed < _TRUNCATED_BELOW * surely_sent


def _is_what_was_new(prompt: Prompt, known: Known, billed: int) -> bool:
    """As much as stands behind what the server may have in its cache: instructions and tools, what was billed
    before, or what was sent last.
    """
    begins = {0, known.anchored_at}
    answered = [place for place, role in enumerate(prompt.roles) if role == ANSWERED_BY]
    if answered:
        begins |= {answered[-1], answered[-1] + 1}
    news = (known.calibration.tokens(prompt.since(begin)) for begin in begins)
    return any(abs(billed - new) <= _NEWS_OFF * new + _NEWS_SLACK for new in news)


def _resent_answer(prompt: Prompt, usage: Usage, choices: int) -> int:
    """Of several choices one is resent; a begun answer (prefill) is resent together with its beginning."""
    begun = prompt.length > 0 and prompt.roles[-1] == ANSWERED_BY
    return 0 if choices != 1 or begun else max(0, usage.completion - usage.reasoning)


def _opening(prompt: Prompt, counted: Count, known: Known, billed: int) -> Opening | None:
    """Learned where conversations begin: there the least of the bill is estimated.

    And only from text: the price of a file would be asked of every conversation that begins alike.
    """
    messages = prompt.sums[-1]
    if messages.rough or messages.media or (counted.basis is Basis.ANCHORED and known.opening is not None):
        return None
    tokens = max(0.0, billed - known.calibration.tokens(messages))
    if tokens > _MOST_HIDDEN + _MOST_UNDERRATED * prompt.outside.estimate.plain:
        return None
    seen = Opening(tokens, known.calibration.deviation(messages))
    return seen if known.opening is None else _merged(known.opening, seen)


def _merged(opening: Opening, seen: Opening) -> Opening:
    """Nearer to what was seen, the surer that is; and in doubt for a while after a surprise.

    A gateway may have put other tools behind the same instructions.
    """
    difference, blur = seen.tokens - opening.tokens, seen.deviation**2
    surprise = max(0.0, difference**2 - blur)
    spread = (1 - _SPREAD_RATE) * opening.deviation**2 + _SPREAD_RATE * surprise
    share = spread / (spread + blur) if spread else 0.0
    return Opening(opening.tokens + share * difference, sqrt(spread))
