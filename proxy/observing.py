"""Observe mode: what would be folded is planned as if it were, with folds that nobody has written."""

from __future__ import annotations

import secrets
from dataclasses import replace

from proxy.fold.plan import Keep, Make, Plan, Reuse
from proxy.fold.record import Fold, Kind, Trigger
from proxy.fold.tail import Cut
from proxy.folds import Folds
from proxy.policies import Policies
from proxy.request import Request
from proxy.sending import Sending, as_it_came
from proxy.sizing import Sizing
from proxy.tidings import Reason, Tidings
from proxy.weighing import Weighing, chosen
from proxy.writers import Writers

# More steps than any plan takes.
_STEPS = 4


class Observing:
    def __init__(
        self, folds: Folds, sizing: Sizing, policies: Policies, writers: Writers, tidings: Tidings
    ) -> None:
        self._folds = folds  # imagined ones: they are never in the store of the real ones
        self._sizing = sizing
        self._policies = policies
        self._writers = writers
        self._tidings = tidings

    async def decide(self, request: Request) -> Sending:
        """As it came, with the fold that it would have been sent with."""
        sending = as_it_came(request)
        if not self._concerns(request):
            return sending
        weighing = await self._weighing(request)
        decided = await self._imagined(weighing)
        fold = chosen(decided)
        if fold is None:
            return sending
        freed = weighing.size(weighing.fold_in_use).tokens - weighing.size(fold).tokens
        return replace(sending, would=fold, freed=freed)

    def _concerns(self, request: Request) -> bool:
        if request.line is None or request.chat.copied:
            return False  # as where it is not observed: nothing could be written into the client's bytes
        if self._policies.strategy(request.sized.window.known, request.wishes) == "off":
            return False
        in_use = request.found is not None and request.found.lane.fold is not None
        return in_use or request.sized.budget.past_soft(request.sized.counted.count)

    async def _weighing(self, request: Request) -> Weighing:
        room = request.sized.budget.room
        lengths = self._writers.of(request).lengths
        policy = self._policies.fold(
            request.sized.window.known, request.wishes, room, lengths, may_start=True
        )
        weighing = Weighing(request, self._sizing, policy, plainly=False, counts=False)
        for fold in await self._folds.known(request.tenant, weighing.history):
            weighing.add(fold)
        return weighing

    async def _imagined(self, weighing: Weighing) -> Plan:
        decided = await weighing.plan()
        for _ in range(_STEPS):
            cut = decided.cut if isinstance(decided, Make) else decided.prepare
            if cut is None:
                break
            await self._imagine(weighing, cut, decided)
            if isinstance(decided, Keep | Reuse):
                break  # prepared for later
            decided = await weighing.plan()
        return decided

    async def _imagine(self, weighing: Weighing, cut: Cut, decided: Plan) -> None:
        request, history = weighing.request, weighing.history
        spoken = range(cut.base.covers if cut.base else 0, cut.covers)
        told = sum(history.turns[history.spoken[number]].tokens for number in spoken)
        told += cut.base.summary_tokens if cut.base else 0
        fold = Fold(
            id=f"observed-{secrets.token_hex(8)}",
            home=history.home,
            prefix=history.chain[cut.covers],
            covers=cut.covers,
            kept=cut.kept,
            messages=(),
            text="",
            kind=Kind.SUMMARY,
            trigger=Trigger.AUTO,
            created=0.0,
            original_tokens=told,
            summary_tokens=weighing.policy.lengths.limit(told),
            parent=cut.base.id if cut.base else None,
        )
        weighing.add(await self._folds.keep(request.tenant, fold))
        reason = Reason.HARD if isinstance(decided, Make) else Reason.SOFT
        self._tidings.imagined(request.tenant, request.conversation.id, fold, reason)
