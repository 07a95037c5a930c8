"""How much of a history stays as it is when the rest is folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from proxy.fold.cuts import allowed_cuts, begins_with_a_user_message
from proxy.fold.history import History
from proxy.fold.record import Fold, Kind

# How long a summary is expected to be: a share of what it replaces, and hardly ever less than this.
_SUMMARY_SHARE = 10
_LEAST_SUMMARY = 200


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
    summary: int  # as expected
    left_out: int  # sent now, with the deepest fold there is, and no longer then
    freed: int  # what remains of these when the summary has taken its part


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a fold may leave, in tokens."""

    tail: int
    messages: int  # all of them together, instructions and summary included


def deeper_cut(history: History, folds: Sequence[Fold], allowance: Allowance) -> Weighed | None:
    """Deeper than all these folds. Its tail is the largest allowed one that begins with a user message; where
    there is none the largest of any; and where every one is too large the smallest.
    """
    cuts = _weighed_cuts(history, folds)
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


def _weighed_cuts(history: History, folds: Sequence[Fold]) -> list[Weighed]:
    """From the shallowest to the deepest; none that would leave out nothing."""
    scales = _Scales(history, folds)
    weighed = [scales.weigh(cut) for cut in allowed_cuts(history) if cut > scales.covered]
    return [each for each in weighed if each.left_out > 0]


class _Scales:
    def __init__(self, history: History, folds: Sequence[Fold]) -> None:
        deepest = max(folds, key=_depth, default=None)
        # What an extract or a truncation has lost is still in the request: a summary is made of that.
        self._base = max((fold for fold in folds if fold.kind is Kind.SUMMARY), key=_depth, default=None)
        self._history = history
        self._tokens = [history.turns[position].tokens for position in history.spoken]
        self._tails = list(accumulate(reversed(self._tokens), initial=0))[::-1]
        self._newest_user = _newest_user_before_each(history)
        self.covered = deepest.covers if deepest else 0
        self._told = deepest.summary_tokens if deepest else 0
        self._sent = self._tails[self.covered] + (self._sum(deepest.kept) if deepest else 0)

    def weigh(self, covers: int) -> Weighed:
        kept = self._pins(covers)
        tail, pinned = self._tails[covers], self._sum(kept)
        left_out = self._sent - tail - pinned
        merged = self._base.summary_tokens if self._base else 0
        summary = max(_LEAST_SUMMARY, merged, left_out // _SUMMARY_SHARE)
        freed = left_out + self._told - summary
        return Weighed(Cut(covers, kept, self._base), tail, pinned, summary, left_out, freed)

    def _pins(self, covers: int) -> tuple[int, ...]:
        """The newest user message, where the fold passes over it: an agent may work on it for hours. And a
        tail that answers an older one has that before it, as many templates want a user to speak first.
        """
        newest = self._newest_user[covers]
        if newest is None or begins_with_a_user_message(self._history, covers):
            return ()
        return (newest,)

    def _sum(self, numbers: tuple[int, ...]) -> int:
        return sum(self._tokens[number] for number in numbers)


def _depth(fold: Fold) -> tuple[int, str]:
    return fold.covers, fold.id


def _newest_user_before_each(history: History) -> list[int | None]:
    newest: list[int | None] = [None]
    for number, position in enumerate(history.spoken):
        newest.append(number if history.turns[position].role == "user" else newest[-1])
    return newest
