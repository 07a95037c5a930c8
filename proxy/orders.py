"""What is to be made for a request, by whom, and on what."""

from __future__ import annotations

from proxy.fold.plan import Make, Plan
from proxy.fold.record import Fold, Kind
from proxy.fold.tail import Cut
from proxy.making import Job, Prefix
from proxy.messages import beside_messages
from proxy.policies import Policies
from proxy.request import Request
from proxy.settings.sections import Summarizer
from proxy.sizing import Sizing
from proxy.tidings import Reason
from proxy.weighing import Weighing, chosen
from proxy.workshop import Order, Workshop
from proxy.writers import Writers


class Orders:
    def __init__(
        self,
        policies: Policies,
        sizing: Sizing,
        writers: Writers,
        workshop: Workshop,
        settings: Summarizer,
    ) -> None:
        self._policies = policies
        self._sizing = sizing
        self._writers = writers
        self._workshop = workshop
        self._settings = settings

    async def prepared(self, weighing: Weighing, decided: Plan) -> Order | None:
        """For a later request, as planned."""
        cut = decided.cut if isinstance(decided, Make) else decided.prepare
        if cut is None or await self._is_being_made(weighing):
            return None
        reason = Reason.HARD if isinstance(decided, Make) else Reason.SOFT
        if not self.asks_a_model(weighing.request):
            return self.extract(weighing, cut, reason)
        return self.summary(weighing, cut, reason, chosen(decided))

    def summary(self, weighing: Weighing, cut: Cut, reason: Reason, sent_with: Fold | None) -> Order:
        """`sent_with` is the fold that the upstream has seen last in this line."""
        return self._order(weighing, cut, reason, Kind.SUMMARY, self._prefix(weighing, cut, sent_with))

    def extract(self, weighing: Weighing, cut: Cut, reason: Reason) -> Order:
        return self._order(weighing, cut, reason, Kind.EXTRACT)

    def asks_a_model(self, request: Request) -> bool:
        return self._policies.strategy(request.sized.window.known, request.wishes) == "summarize"

    async def _is_being_made(self, weighing: Weighing) -> bool:
        """By this process, or by another that has answered the line's last request."""
        request = weighing.request
        if self._workshop.running(request.tenant, weighing.history, request.beside) is not None:
            return True
        prospects = request.found.lane.prospects if request.found else None
        if prospects is None or prospects.making is None or prospects.making not in weighing.history.chain:
            return False
        if self._settings.on_prefix and not _is_steady(request):
            return False  # what is being made may be for the instructions that were there before
        known = {fold.prefix for fold in weighing.folds}
        if prospects.making in known or not self._workshop.is_fresh(prospects.until):
            return False
        # Whoever was at it may have died.
        return await self._workshop.is_made_elsewhere(
            request.tenant, weighing.history.home, prospects.making, request.beside
        )

    def _prefix(self, weighing: Weighing, cut: Cut, sent_with: Fold | None) -> Prefix | None:
        """What the upstream has seen last of what is to be folded, where a summary may be asked for on it."""
        request = weighing.request
        lost = weighing.last is not None and weighing.fold_in_use is None
        if lost or not self._asks_on_prefix(request) or request.beside is None:
            return None
        others = beside_messages(request.chat)
        # What is sent now has lost what an extract has left out: a summary is made of all of it.
        if others is None or sent_with != cut.base:
            return None
        messages, tokens = weighing.sent_before(cut.covers, sent_with)
        return Prefix(messages, others, request.beside, tokens, weighing.budget.window)

    def _asks_on_prefix(self, request: Request) -> bool:
        # Where instructions change from request to request, nothing is in a cache and no such fold would ever
        # be used again.
        if not self._settings.on_prefix or not _is_steady(request):
            return False
        return self._workshop.writes_on_prefixes(request.tenant, request.sized.model)

    def _order(
        self,
        weighing: Weighing,
        cut: Cut,
        reason: Reason,
        kind: Kind,
        prefix: Prefix | None = None,
    ) -> Order:
        request = weighing.request
        writer = self._writers.of(request)
        job = Job(
            weighing.history,
            cut,
            request.sized.model,
            writer.preferred,
            writer.lengths,
            request.credentials,
            self._policies.role(weighing.history),
            self._settings.prompt,
            request.query,
            prefix=prefix,
        )
        count = self._sizing.text_counter(request.sized)
        return Order(request.tenant, request.conversation.id, job, reason, kind, count)


def _is_steady(request: Request) -> bool:
    """Has the line's last request had the same instructions and tools?"""
    return request.found is not None and request.found.lane.beside == request.beside
