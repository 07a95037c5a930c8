"""What would not fit the window as it is: a summary is waited for a while, then something else must do."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic

from proxy.fold.plan import Keep, Make, Plan, Reuse
from proxy.fold.record import Fold
from proxy.fold.tail import Cut
from proxy.ladder import rungs
from proxy.orders import Orders
from proxy.sending import DOES_NOT_FIT, FOLDING_PAUSED, SUMMARY_FAILED, SUMMARY_LATE, Begun
from proxy.tidings import Reason
from proxy.weighing import Weighing
from proxy.workshop import Order, Work, Workshop

# Summaries that one request waits for: the second goes on from the first, and deeper.
_MOST_SUMMARIES = 2


@dataclass(frozen=True, slots=True)
class Pressed:
    """What is done about it, why that is less than it should be, and the summary that was begun for it."""

    plan: Plan
    why: str | None = None
    begun: Begun | None = None


class Pressing:
    def __init__(self, orders: Orders, workshop: Workshop) -> None:
        self._orders = orders
        self._workshop = workshop

    async def plan(self, weighing: Weighing, decided: Plan, reason: Reason, until: float) -> Pressed:
        """Something that fits, as far as there is anything."""
        pressed = await self._summarised(weighing, decided, reason, until)
        if weighing.presses(pressed.plan):
            without = await self._without_a_model(weighing, pressed.plan, reason)
            pressed = replace(pressed, plan=without)
        if not weighing.presses(pressed.plan):
            return pressed
        # Not even the least of it fits, as far as we can tell: the upstream has the last word. On what the
        # client really sent, where it is much too long.
        least = pressed.plan if weighing.may_fit(pressed.plan) else Keep()
        return replace(pressed, plan=least, why=DOES_NOT_FIT)

    async def _summarised(self, weighing: Weighing, decided: Plan, reason: Reason, until: float) -> Pressed:
        """With summaries that are there in time."""
        request = weighing.request
        begun: Begun | None = None
        for _ in range(_MOST_SUMMARIES):
            work = self._workshop.running(request.tenant, weighing.history, request.beside)
            if work is None:
                order, why = self._pressing_order(weighing, decided, reason)
                if order is None:
                    return Pressed(decided, why, begun)
                work = Work(order.job.prefix_value, self._workshop.begin(order))
            # Whoever has asked for it: it is made for this line too.
            begun = Begun(work.prefix, self._workshop.until())
            done, _ = await asyncio.wait({work.task}, timeout=max(0.0, until - monotonic()))
            if not done:
                return Pressed(decided, SUMMARY_LATE, begun)
            if (fold := work.task.result()) is None:
                return Pressed(decided, SUMMARY_FAILED, begun)
            weighing.add(fold)
            decided = await weighing.plan()
            if not weighing.presses(decided):
                break
        return Pressed(decided, None, begun)

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
