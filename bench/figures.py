"""From samples to figures. Pure: the same samples give the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median, quantiles

from bench.subjects import BARE, DIRECT, TAILFOLD

Values = Sequence[float]  # one per round


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of all rounds, and between which values the middle half of them lies."""

    middle: float
    lower: float
    upper: float


class Comparison(Enum):
    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Limit:
    """What is promised: of the ratio to the yardstick or the difference from it, or of the value itself."""

    most: float
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Quantity:
    """One row of the table: a figure of every subject, over the rounds."""

    name: str
    unit: str
    values: Mapping[str, Values]
    comparison: Comparison = Comparison.RATIO
    limit: Limit | None = None
    decimals: int = 0
    judged_subject: str = TAILFOLD
    yardstick: str = BARE

    def middle(self, subject: str) -> float | None:
        values = self.values.get(subject)
        return median(values) if values else None

    def added(self, subject: str) -> Spread | None:
        """What the subject adds to having no proxy at all."""
        return self._paired(subject, DIRECT, difference)

    def against(self, other: str) -> Spread | None:
        """The subject that is judged beside another, as ratio or difference."""
        compare = ratio if self.comparison is Comparison.RATIO else difference
        return self._paired(self.judged_subject, other, compare)

    def judged(self) -> float | None:
        """The figure that the limit is about."""
        if self.limit and self.limit.absolute:
            return self.middle(self.judged_subject)
        beside = self.against(self.yardstick)
        return beside.middle if beside else None

    def passes(self) -> bool | None:
        judged = self.judged()
        return None if self.limit is None or judged is None else judged <= self.limit.most

    def _paired(self, one: str, other: str, compare: Callable[[float, float], float]) -> Spread | None:
        ours, theirs = self.values.get(one), self.values.get(other)
        return paired(ours, theirs, compare) if ours and theirs else None


def paired(ours: Values, theirs: Values, compare: Callable[[float, float], float]) -> Spread:
    """Compared round by round, and only then the median.

    What else the machine did in a round slowed both, so it falls out of the comparison.
    """
    compared = [compare(one, other) for one, other in zip(ours, theirs, strict=True)]
    return spread(compared)


def spread(values: Values) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    lower, middle, upper = quantiles(values, n=4, method="inclusive")
    return Spread(middle, lower, upper)


def ratio(one: float, other: float) -> float:
    return one / other


def difference(one: float, other: float) -> float:
    return one - other


def rotated(names: Sequence[str], by: int) -> list[str]:
    """Another subject first in every round, so that none always follows the same neighbour's mess."""
    by %= len(names)
    return [*names[by:], *names[:by]]
