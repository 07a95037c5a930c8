"""Carrying out plans: in which form a request is sent, and which fold is begun when it has been answered.

Nothing is decided here that `proxy.fold.plan` could decide, and nobody waits for a summary who need not.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

from proxy.fold.history import History
from proxy.fold.plan import Plan
from proxy.fold.record import Fold, Kind
from proxy.folds import Folds
from proxy.going_on import Forms, GoingOn
from proxy.hearsay import Hearsay
from proxy.metrics import Metrics
from proxy.orders import Orders
from proxy.policies import Policies
from proxy.pressing import Pressing
from proxy.request import Request
from proxy.sending import DOES_NOT_FIT, Begun, Sending, as_it_came
from proxy.settings.sections import Summarizer
from proxy.sizing import Sizing
from proxy.tidings import Reason
from proxy.weighing import Weighing, chosen
from proxy.windows.overflow import Overflow
from proxy.workshop import Workshop
from proxy.writers import Writers

# How much smaller a request is made that was refused although it seemed to fit.
_SLACK = 1.01
_UNTOLD = 1.15


class Folding:
    def __init__(
        self,
        folds: Folds,
        hearsay: Hearsay,
        sizing: Sizing,
        policies: Policies,
        writers: Writers,
        workshop: Workshop,
        settings: Summarizer,
        forms: Forms,
        metrics: Metrics,
    ) -> None:
        self._folds = folds
        self._hearsay = hearsay
        self._sizing = sizing
        self._policies = policies
        self._writers = writers
        self._workshop = workshop
        self._settings = settings
        self._forms = forms
        self._metrics = metrics
        self._orders = Orders(policies, sizing, writers, workshop, settings)
        self._going_on = GoingOn(folds, sizing, workshop, forms)
        self._pressing = Pressing(self._orders, workshop)

    async def decide(self, request: Request, *, again: bool = False) -> Sending:
        """`again` after the upstream has refused it as too long."""
        if not self._is_wanted(request):
            return as_it_came(request)
        if request.line is None or request.chat.copied:
            return _as_it_has_to(request)
        if not _is_due(request):
            return as_it_came(request)
        if not again and (going_on := await self._going_on.sending(request)) is not None:
            return going_on
        weighing = await self._weighing(request)
        decided = await weighing.plan()
        if not weighing.presses(decided):
            return await self._sending(weighing, decided)
        began = monotonic()
        reason = Reason.OVERFLOW if again else Reason.MUST
        pressed = await self._pressing.plan(weighing, decided, reason, began + self._settings.max_wait)
        waited = monotonic() - began
        self._metrics.waited_for_a_fold(waited)
        sending = await self._sending(weighing, pressed.plan)
        warnings = (pressed.why,) if pressed.why else ()
        return replace(sending, waited=waited, warnings=warnings, begun=pressed.begun)

    def begin(self, request: Request, sending: Sending) -> Begun | None:
        """After the answer; what has been begun for the line, now or while the request was waiting."""
        order = sending.prepare
        if order is None or not self._may_start(request):  # others may have begun some meanwhile
            return sending.begun
        if order.kind is Kind.SUMMARY and self._workshop.hesitates(order.tenant, order.job.model):
            return sending.begun
        if self._workshop.running(order.tenant, order.job.history, order.job.beside) is None:
            self._workshop.begin(order)
        return Begun(order.job.prefix_value, self._workshop.until())

    def is_refused_its_role(self, model: str) -> None:
        """From now on this model is told summaries in the plainer form."""
        self._forms.refuse(model)

    def _is_wanted(self, request: Request) -> bool:
        known, wishes = request.sized.window.known, request.wishes
        return wishes.mode == "compress" and self._policies.strategy(known, wishes) != "off"

    async def _weighing(self, request: Request) -> Weighing:
        room = request.sized.budget.room
        lengths = self._writers.of(request).lengths
        policy = self._policies.fold(
            request.sized.window.known, request.wishes, room, lengths, may_start=self._may_start(request)
        )
        plainly = self._forms.is_plain(request)
        weighing = Weighing(request, self._sizing, policy, plainly=plainly)
        for fold in await self._known(request, weighing.history):
            weighing.add(fold)
        return weighing

    async def _known(self, request: Request, history: History) -> list[Fold]:
        if not self._settings.on_prefix:
            known = await self._folds.known(
                request.tenant, history, recalled=request.recalled, older=not self._knows_its_fold(request)
            )
            in_use = request.found.lane.fold if request.found else None
            if in_use is None or any(fold.id == in_use for fold in known):
                return known
        # Those too that have seen the instructions. What is in use stays, whatever is set today.
        recalled = request.recalled and self._settings.on_prefix
        return await self._folds.known(request.tenant, history, request.beside, recalled=recalled)

    def _may_start(self, request: Request) -> bool:
        if request.found is None:
            return True
        hearsay = self._hearsay.unused(request.tenant, request.conversation)
        return request.found.lane.prospects.may_start(hearsay)

    def _knows_its_fold(self, request: Request) -> bool:
        """The line's last request tells with which fold it went out, and that one is at hand if there is one:
        older ones are of no use then. Nor are there any where those that were made came to nothing.
        """
        if not self._may_start(request):
            return True
        if request.found is None or not request.found.since:
            return False
        lane = request.found.lane
        return lane.fold is None or self._folds.at_hand(request.tenant, lane.prefix) is not None

    async def _sending(self, weighing: Weighing, decided: Plan) -> Sending:
        fold = chosen(decided)
        form = await weighing.form(fold) if fold is not None else weighing.as_it_came
        if form is None:
            return as_it_came(weighing.request)
        freed = 0
        if fold is not None and fold.id != weighing.last:
            freed = weighing.size(weighing.fold_in_use).tokens - form.sized.counted.count.tokens
        return Sending(form, weighing.size(None), freed, await self._orders.prepared(weighing, decided))


def _as_it_has_to(request: Request) -> Sending:
    """What cannot be read as it is, or told apart, cannot be folded either."""
    sized = request.sized
    does_not_fit = sized.budget.may_fold and not sized.budget.fits(sized.counted.count)
    return replace(as_it_came(request), warnings=(DOES_NOT_FIT,) if does_not_fit else ())


def _is_due(request: Request) -> bool:
    in_use = request.found is not None and request.found.lane.fold is not None
    sized = request.sized
    return in_use or request.underrated > 1 or sized.budget.past_soft(sized.counted.count)


def refused_as_larger(request: Request, sending: Sending, too_long: Overflow) -> Request:
    """The same request, to be made smaller than it was if the upstream counts higher than we do."""
    sized = sending.form.sized
    counted = max(1, sized.counted.count.tokens)
    if not sized.budget.fits(sized.counted.count):
        return request  # no wonder: there was nothing shorter to send before the window was known
    prompt = too_long.prompt(counted, sized.declared)
    if prompt is None:
        return replace(request, underrated=request.underrated * _UNTOLD)
    return replace(request, underrated=max(request.underrated, _SLACK * max(1.0, prompt / counted)))
