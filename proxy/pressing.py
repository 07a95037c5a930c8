"""What would not fit the window as it is: a summary is waited for a while, then something else must do."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from time import monotonic

from proxy.fold.plan import Keep, Make, Plan, Reuse
from proxy.fold.record import Fold
from proxy.fold.tail import Cut
from proxy.ladder import rungs
from proxy.orders import Orders
from proxy.sending import DOES_NOT_FIT, FOLDING_PAUSED, SUMMARY_FAILED, SUMMARY_LATE
from proxy.tidings import Reason
from proxy.weighing import Weighing
from proxy.workshop import Order, Workshop

# Summaries that one request waits for: the second goes on from the first, and deeper.
_MOST_SUMMARIES = 2


class Pressing:
    def __init__(self, orders: Orders, workshop: Workshop) -> None:
        self._orders = orders
        self._workshop = workshop

    async def plan(
        self, weighing: Weighing, decided: Plan, reason: Reason, until: float
    ) -> tuple[Plan, str | None]:
        """Something that fits, as far as there is anything, and why it is less than it should be."""
        decided, why = await self._summarised(weighing, decided, reason, until)
        if weighing.presses(decided):
            decided = await self._without_a_model(weighing, decided, reason)
        if not weighing.presses(decided):
            return decided, why
        # Not even the least of it fits, as far as we can tell: the upstream has the last word. On what the
        # client really sent, where it is much too long.
        return (decided if weighing.may_fit(decided) else Keep()), DOES_NOT_FIT

    async def _summarised(
        self, weighing: Weighing, decided: Plan, reason: Reason, until: float
    ) -> tuple[Plan, str | None]:
        """With summaries that are there in time, and why there is none."""
        request = weighing.request
        for _ in range(_MOST_SUMMARIES):
            task = self._workshop.running(request.tenant, weighing.history, request.beside)
            if task is None:
                order, why = self._pressing_order(weighing, decided, reason)
                if order is None:
                    return decided, why
                task = self._workshop.begin(order)
            done, _ = await asyncio.wait({task}, timeout=max(0.0, until - monotonic()))
            if not done:
                return decided, SUMMARY_LATE
            if (fold := task.result()) is None:
                return decided, SUMMARY_FAILED
            weighing.add(fold)
            decided = await weighing.plan()
            if not weighing.presses(decided):
                break
        return decided, None

    def _pressing_order(
        self, weighing: Weighing, decided: Plan, reason: Reason
    ) -> tuple[Order | None, str | None]:
        request = weighing.request
        if not isinstance(decided, Make) or not self._orders.asks_a_model(request):
            return None, None
        if not weighing.policy.may_start:
            return None, FOLDING_PAUSED
        if hesitates := self._workshop.hesitates(request.tenant, request.sized.model):
            return None, hesitates
        return self._orders.summary(weighing, decided.cut, reason, weighing.fold_in_use), None

    async def _without_a_model(self, weighing: Weighing, decided: Plan, reason: Reason) -> Plan:
        request = weighing.request
        # What is being summed up keeps its place for the summary.
        running = self._workshop.running(request.tenant, weighing.history, request.beside)
        first = decided.cut if isinstance(decided, Make) and running is None else None
        order = self._orders.extract(weighing, first or Cut(0, (), None), reason)
        last: Fold | None = None
        async with aclosing(rungs(weighing, first, order.job, self._workshop.maker(order))) as candidates:
            async for fold in candidates:
                last = fold
                if not await weighing.fits_with(fold):
                    continue
                kept = await self._workshop.keep(order, fold)
                if not await weighing.fits_with(kept):
                    kept = fold  # what is kept for this prefix is too long: this once without a record
                weighing.add(kept)
                decided = await weighing.plan()
                return Reuse(kept) if weighing.presses(decided) else decided
        return Reuse(last) if last is not None else decided
