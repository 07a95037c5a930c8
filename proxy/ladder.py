"""What must be folded and has no summary in time: folds that need no model, from the best to the last resort.

Each is a record like any other, so what it has left out stays left out while the conversation goes on, and
the provider's cache holds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from proxy.fold.history import Turn
from proxy.fold.record import Fold
from proxy.fold.shrink import LEAST, LEAST_IN_NEED, shrunk
from proxy.fold.tail import Allowance, Cut, deeper_cut, last_group
from proxy.making import Job, Maker
from proxy.weighing import Weighing

# An extract of fewer tokens says nothing.
_LEAST_EXTRACT = 64
_SHORT = 200
# What is said around an extract.
_WRAPPER = 180


async def rungs(weighing: Weighing, first: Cut | None, job: Job, maker: Maker) -> AsyncGenerator[Fold, None]:
    """One after the other until one fits. `job` is an example: the same for another cut is made of it."""
    deepest = deeper_cut(weighing.history, weighing.folds, Allowance(0, 0))
    for cut in filter(None, (first, deepest.cut if deepest else None)):
        if (left := _left(weighing, cut)) >= _LEAST_EXTRACT:
            yield await maker.extract(replace(job, cut=cut).at_most(left))
    if deepest is not None:
        yield maker.truncation(replace(job, cut=deepest.cut))
    cut = last_group(weighing.history)
    for beside in (_WRAPPER + _SHORT, _WRAPPER, 0):
        results = _shorter_results(weighing, cut, beside, maker)
        if not results and len(cut.kept) == cut.covers:
            return  # nothing is left out, and nothing can be made smaller
        smaller = replace(job, cut=cut, shrunk=results).at_most(_SHORT)
        if beside > _WRAPPER:
            yield await maker.extract(smaller)
        else:
            yield maker.truncation(smaller, marked=beside > 0)


def _left(weighing: Weighing, cut: Cut) -> int:
    """Tokens that an extract may have."""
    return weighing.budget.largest - weighing.beside(cut.covers, cut.kept) - _WRAPPER


def _shorter_results(weighing: Weighing, cut: Cut, beside: int, maker: Maker) -> dict[int, bytes]:
    """Of the turns that are kept, by their numbers: results, and in need what the assistant has said or has
    called tools with, without their middle.
    """
    kept = [_turn(weighing, number) for number in cut.kept]
    needed = weighing.beside(cut.covers, cut.kept) + beside
    if needed <= weighing.budget.largest:
        return {}
    # Down to the soft trigger, so that the next turns fit as well; in need, as little as there may be.
    goal = weighing.budget.soft if beside > _WRAPPER else 0
    found = shrunk(kept, needed - goal, maker.count, LEAST_IN_NEED if beside == 0 else LEAST)
    return {cut.kept[place]: raw for place, raw in found.messages.items()}


def _turn(weighing: Weighing, number: int) -> Turn:
    return weighing.history.turns[weighing.history.spoken[number]]
