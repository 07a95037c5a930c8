"""How much of a history stays as it is when the rest is folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from proxy.fold.cuts import allowed_cuts, begins_with_a_user_message
from proxy.fold.history import History
from proxy.fold.lengths import UNBOUNDED, Lengths
from proxy.fold.record import Fold, Kind


@dataclass(frozen=True, slots=True)
class Cut:
    """A fold to be made: of the first `covers` spoken turns, of which those `kept` are sent all the same."""

    covers: int
    kept: tuple[int, ...]
    base: Fold | None  # the summary that it goes on from


@dataclass(frozen=True, slots=True)
class Weighed:
    """A cut and what it would leave, in tokens."""

    cut: Cut
    tail: int
    pinned: int
    summary: int  # at most, and so it is expected
    left_out: int  # sent now, with the deepest fold there is, and no longer then
    freed: int  # what remains of these when the summary has taken its part


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a fold may leave, in tokens."""

    tail: int
    messages: int  # all of them together, instructions and summary included
    lengths: Lengths = UNBOUNDED  # of the summary itself


def deeper_cut(history: History, folds: Sequence[Fold], allowance: Allowance) -> Weighed | None:
    """Deeper than every usable one of these folds. Its tail is the largest allowed one that begins with a
    user message; where there is none the largest of any; and where every one is too large the smallest.
    """
    cuts = _weighed_cuts(history, folds, allowance.lengths)
    instructions = sum(turn.tokens for turn in history.turns if turn.instructs)
    retained = [
        weighed
        for weighed in cuts
        if weighed.tail <= allowance.tail
        and instructions + weighed.summary + weighed.pinned + weighed.tail <= allowance.messages
    ]
    natural = [weighed for weighed in retained if begins_with_a_user_message(history, weighed.cut.covers)]
    preferred = natural[:1] or retained[:1] or cuts[-1:]
    return preferred[0] if preferred else None


def usable_folds(history: History, folds: Iterable[Fold]) -> list[Fold]:
    """From the shallowest to the deepest. A history that begins as the one that a fold was made for may go on
    in another way: with the result of a folded call, or with no user message where there was one.
    """
    allowed, pins = {*allowed_cuts(history), history.length}, _pins(history)
    usable = [fold for fold in folds if fold.covers in allowed and pins[fold.covers] <= {*fold.kept}]
    return sorted(usable, key=lambda fold: (fold.covers, fold.id))


def last_group(history: History) -> Cut:
    """All of it, with its last group kept: what cannot be cut off may still be made smaller."""
    start = max(allowed_cuts(history), default=0)
    kept = {*_pins(history)[start], *range(start, history.length)} if history.length else set()
    return Cut(history.length, tuple(sorted(kept)), None)


def _pins(history: History) -> list[set[int]]:
    """For every cut: the newest user message, where the fold passes over it; an agent may work on one for
    hours. And a tail that answers an older one has that before it: many templates want a user to speak first.
    Where everything is covered, the last turn is to be answered and must be there too.
    """
    pins: list[set[int]] = []
    newest: set[int] = set()
    for number in range(history.length):
        begins_naturally = begins_with_a_user_message(history, number)
        pins.append(set() if begins_naturally else newest)
        newest = {number} if begins_naturally else newest
    return [*pins, newest | {history.length - 1}]


def _weighed_cuts(history: History, folds: Sequence[Fold], lengths: Lengths) -> list[Weighed]:
    """From the shallowest to the deepest; none that would leave out nothing."""
    scales = _Scales(history, usable_folds(history, folds), lengths)
    taken = {fold.covers for fold in folds}  # a fold is never made twice, usable or not
    cuts = [cut for cut in allowed_cuts(history) if cut > scales.covered and cut not in taken]
    return [weighed for weighed in map(scales.weigh, cuts) if weighed.left_out > 0]


class _Scales:
    """Weighs cuts against what is sent with the deepest of these folds."""

    def __init__(self, history: History, folds: list[Fold], lengths: Lengths) -> None:
        deepest = folds[-1] if folds else None
        # What an extract or a truncation has lost is still in the request: a summary is made of that.
        self._base = next((fold for fold in reversed(folds) if fold.kind is Kind.SUMMARY), None)
        self._lengths = lengths
        self._pins = _pins(history)
        self._tokens = [history.turns[position].tokens for position in history.spoken]
        self._tails = list(accumulate(reversed(self._tokens), initial=0))[::-1]
        self.covered = deepest.covers if deepest else 0
        self._told = deepest.summary_tokens if deepest else 0
        self._sent = self._tails[self.covered] + self._sum(deepest.kept if deepest else ())

    def weigh(self, covers: int) -> Weighed:
        kept = tuple(self._pins[covers])
        tail, pinned = self._tails[covers], self._sum(kept)
        left_out = self._sent - tail - pinned
        merged, told_from = (self._base.summary_tokens, self._base.covers) if self._base else (0, 0)
        summary = self._lengths.limit(merged + self._tails[told_from] - tail)
        freed = left_out + self._told - summary
        return Weighed(Cut(covers, kept, self._base), tail, pinned, summary, left_out, freed)

    def _sum(self, numbers: tuple[int, ...]) -> int:
        return sum(self._tokens[number] for number in numbers)
