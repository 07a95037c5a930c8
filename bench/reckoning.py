"""What a replay came to: refusals, folds, and the bill beside what others would have paid. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from bench import baselines
from bench.playback import Replayed
from bench.prompts import Bill, bill
from proxy.fold.lengths import LEAST_TOKENS

ALL = "all"
OURS, FULL, SLIDING, EVERY_TURN = "Tailfold", "full history", "sliding window", "folding on every turn"
EVERY_TURN_AT_BEST = f"{EVERY_TURN}, at best"  # each summary call finds the last one's transcript cached
WAYS = (OURS, FULL, SLIDING, EVERY_TURN, EVERY_TURN_AT_BEST)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one conversation, or of several together. What was refused is in the counts and not in the bills."""

    conversations: int = 0
    requests: int = 0
    unavoidable: int = 0  # refused, and what must be kept does not fit by itself
    avoidable: int = 0  # refused all the same
    recovered: int = 0  # answered, after the provider had refused what was sent first
    folds: int = 0
    without_model: int = 0  # of the folds
    announced: int = 0  # tokens received, as the proxy said
    bills: dict[str, Bill] = field(default_factory=dict)  # by way of sending

    def __add__(self, other: Figures) -> Figures:
        names = [name for name in self.__slots__ if name != "bills"]
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        bills = {way: self.bills.get(way, Bill()) + other.bills.get(way, Bill()) for way in WAYS}
        return Figures(**counts, bills=bills)

    def cost(self, way: str, *, caching: bool) -> float:
        """Where the whole history without caching is 100."""
        whole = self.bills[FULL].cost(caching=False)
        return 100 * self.bills[way].cost(caching=caching) / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    share: float
    figures: Figures


def figures(replayed: Sequence[Replayed]) -> list[Row]:
    """A row for every kind and share, and one for all kinds of a share."""
    rows: dict[tuple[str, float], Figures] = {}
    for one in replayed:
        of_one = figures_of(one)
        for kind in (one.case.kind, ALL):
            key = kind, one.case.share
            rows[key] = rows.get(key, Figures()) + of_one
    ordered = sorted(rows, key=lambda key: (key[0] == ALL, key[1], key[0]))
    return [Row(kind, share, rows[kind, share]) for kind, share in ordered]


def figures_of(replayed: Replayed) -> Figures:
    avoidable, folds = replayed.avoidable(), replayed.folds()
    return Figures(
        conversations=1,
        requests=len(replayed.turns),
        unavoidable=len(replayed.refused) - len(avoidable),
        avoidable=len(avoidable),
        recovered=sum(turn.attempts > 1 for turn in replayed.answered),
        folds=folds.total(),
        without_model=folds["extract"] + folds["truncate"],
        announced=sum(turn.announced or 0 for turn in replayed.answered),
        bills=_bills(replayed),
    )


def _bills(replayed: Replayed) -> dict[str, Bill]:
    """For the requests that were answered, and how else those could have been sent."""
    received = [turn.received for turn in replayed.answered]
    budget = replayed.case.budget
    folded, calls = baselines.folding_every_turn(received, budget.hard, _summary_tokens(replayed))
    return {
        OURS: bill(replayed.sent, replayed.summaries),
        FULL: bill(received),
        SLIDING: bill(baselines.sliding_window(received, budget.room)),
        EVERY_TURN: bill(folded, [replace(call, cached=0) for call in calls]),
        EVERY_TURN_AT_BEST: bill(folded, calls),
    }


def _summary_tokens(replayed: Replayed) -> int:
    lengths = [call.output for call in replayed.summaries]
    return round(fmean(lengths)) if lengths else LEAST_TOKENS
