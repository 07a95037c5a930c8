"""Carrying out plans: in which form a request is sent, and which fold is begun when it has been answered.

Nothing is decided here that `proxy.fold.plan` could decide, and nobody waits for a summary who need not.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic

import msgspec

from proxy.budget import Size
from proxy.counting.anchors import Basis
from proxy.fold.assemble import folded, goes_on_whole
from proxy.fold.history import History
from proxy.fold.plan import Keep, Make, Plan, Reuse
from proxy.fold.record import Fold, Kind
from proxy.fold.tail import Cut
from proxy.folds import Folds
from proxy.histories import Line, unsized
from proxy.ladder import rungs
from proxy.lanes import Lane
from proxy.making import Job, Prefix
from proxy.messages import beside_messages
from proxy.metrics import Metrics
from proxy.policies import Policies
from proxy.request import Request
from proxy.settings.sections import Summarizer as SummarizerSettings
from proxy.sizing import Sizing
from proxy.summarizer import preferred_model
from proxy.tidings import Reason
from proxy.weighing import Form, Weighing, chosen
from proxy.windows.facts import Origin
from proxy.windows.kept import Kept
from proxy.workshop import Order, Workshop

# After so many folds in vain, or that have freed too little, a line begins none any more.
MOST_UNUSED = 2
MOST_FUTILE = 3
# Summaries that one request waits for: the second goes on from the first, and deeper.
_MOST_SUMMARIES = 2

# How much smaller a request is made that was refused although it seemed to fit.
_SLACK = 1.01
_UNTOLD = 1.15

DOES_NOT_FIT = "does_not_fit"
SUMMARY_LATE = "summary_late"
SUMMARY_FAILED = "summary_failed"
FOLDING_PAUSED = "folding_paused"


class Plain(msgspec.Struct, frozen=True, array_like=True):
    """A model's template has refused the role of a summary."""

    refused: bool = True


@dataclass(frozen=True, slots=True)
class Sending:
    """The form in which a request goes out, and what is to be begun when it has been answered."""

    form: Form
    received: Size  # as it came
    freed: int = 0  # by a fold that the line's last request did not have
    prepare: Order | None = None
    warnings: tuple[str, ...] = ()
    waited: float = 0.0  # seconds, for a fold
    would: Fold | None = None  # in observe mode: what it would have been sent with

    @property
    def fold(self) -> Fold | None:
        return self.form.fold


@dataclass(frozen=True, slots=True)
class Begun:
    """A fold that is being made: of which prefix, and until when it is to be expected."""

    prefix: bytes
    until: float


class Folding:
    def __init__(
        self,
        folds: Folds,
        sizing: Sizing,
        policies: Policies,
        workshop: Workshop,
        summarizer: SummarizerSettings,
        plain: Kept[Plain],
        metrics: Metrics,
    ) -> None:
        self._folds = folds
        self._sizing = sizing
        self._policies = policies
        self._workshop = workshop
        self._settings = summarizer
        self._plain = plain
        self._metrics = metrics

    async def decide(self, request: Request, *, again: bool = False) -> Sending:
        """`again` after the upstream has refused it as too long."""
        if not self._concerns(request):
            return as_it_came(request)
        if not again and (going_on := await self._going_on(request)) is not None:
            return going_on
        weighing = await self._weighing(request)
        decided = await weighing.plan()
        if not weighing.presses(decided):
            return await self._sending(weighing, decided)
        began = monotonic()
        reason = Reason.OVERFLOW if again else Reason.MUST
        decided, why = await self._pressed(weighing, decided, reason, began + self._settings.max_wait)
        waited = monotonic() - began
        self._metrics.waited_for_a_fold(waited)
        sending = await self._sending(weighing, decided)
        return replace(sending, waited=waited, warnings=(why,) if why else ())

    def begin(self, order: Order | None) -> Begun | None:
        """After the answer; what was really begun."""
        if order is None:
            return None
        if order.kind is Kind.SUMMARY and self._workshop.hesitates(order.tenant, order.job.model):
            return None
        if self._workshop.running(order.tenant, order.job.history, order.job.beside) is None:
            self._workshop.begin(order)
        return Begun(order.job.prefix_value, self._workshop.until())

    def is_refused_its_role(self, model: str) -> None:
        """From now on this model is told summaries in the plainer form."""
        self._plain.put(model, Plain())

    def _concerns(self, request: Request) -> bool:
        if request.line is None or request.wishes.mode != "compress" or request.chat.copied:
            return False
        if self._policies.strategy(request.sized.window.known, request.wishes) == "off":
            return False
        in_use = request.found is not None and request.found.lane.fold is not None
        sized = request.sized
        return in_use or request.underrated > 1 or sized.budget.past_soft(sized.counted.count)

    # Between two folds there is nothing to plan.

    async def _going_on(self, request: Request) -> Sending | None:
        """As the line's last request was sent, where that is known to do; None where it takes a plan."""
        assert request.line is not None
        if request.found is None or not request.found.since:
            return None
        lane, count = request.found.lane, request.sized.counted.count
        if lane.fold is not None:
            form = await self._form_in_use(request, request.line, lane)
            return Sending(form, count) if form is not None else None
        if request.sized.budget.past_hard(count):
            return None
        hesitates = self._workshop.hesitates(request.tenant, request.sized.model) is not None
        return as_it_came(request) if hesitates or self._is_prepared(request, lane) else None

    async def _form_in_use(self, request: Request, line: Line, lane: Lane) -> Form | None:
        fold = self._folds.at_hand(request.tenant, lane.prefix, request.beside)
        if fold is None or fold.id != lane.fold or fold.covers >= line.length:
            return None
        history = unsized(line)
        chat = folded(request.chat, history, fold, plainly=await self._is_plain(request))
        if chat is None or not goes_on_whole(history, fold):
            return None
        sized = await self._sizing.size(request.tenant, chat, request.wishes.threshold)
        count, budget = sized.counted.count, request.sized.budget
        if count.basis is not Basis.ANCHORED or budget.past_hard(count):
            return None
        if budget.past_soft(count) and not self._is_prepared(request, lane):
            return None
        return Form(chat, sized, fold)

    def _is_prepared(self, request: Request, lane: Lane) -> bool:
        """The next fold is being made, or there and waits until it is needed."""
        assert request.line is not None
        prefix = lane.making
        if prefix is None or prefix == lane.prefix or prefix not in request.line.chain:
            return False
        made = self._folds.at_hand(request.tenant, prefix, request.beside)
        return made is not None or self._workshop.is_making(request.tenant, prefix, request.beside)

    async def _is_plain(self, request: Request) -> bool:
        await self._plain.recall(request.sized.model)
        return self._plain.get(request.sized.model) is not None

    async def _weighing(self, request: Request) -> Weighing:
        room = request.sized.budget.room
        policy = self._policies.fold(
            request.sized.window.known, request.wishes, room, may_start=_may_start(request)
        )
        weighing = Weighing(request, self._sizing, policy, plainly=await self._is_plain(request))
        for fold in await self._known(request, weighing.history):
            weighing.add(fold)
        return weighing

    async def _known(self, request: Request, history: History) -> list[Fold]:
        if not self._settings.on_prefix:
            known = await self._folds.known(request.tenant, history)
            in_use = request.found.lane.fold if request.found else None
            if in_use is None or any(fold.id == in_use for fold in known):
                return known
        # Those too that have seen the instructions. What is in use stays, whatever is set today.
        return await self._folds.known(request.tenant, history, request.beside)

    # What would not fit as it is.

    async def _pressed(
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
        strategy = self._policies.strategy(request.sized.window.known, request.wishes)
        if not isinstance(decided, Make) or strategy != "summarize":
            return None, None
        if not weighing.policy.may_start:
            return None, FOLDING_PAUSED
        if hesitates := self._workshop.hesitates(request.tenant, request.sized.model):
            return None, hesitates
        lost = weighing.last is not None and weighing.fold_in_use is None
        prefix = None if lost else self._prefix(weighing, decided.cut, weighing.fold_in_use)
        return self._order(weighing, decided.cut, reason, prefix=prefix), None

    async def _without_a_model(self, weighing: Weighing, decided: Plan, reason: Reason) -> Plan:
        request = weighing.request
        # What is being summed up keeps its place for the summary.
        running = self._workshop.running(request.tenant, weighing.history, request.beside)
        first = decided.cut if isinstance(decided, Make) and running is None else None
        order = self._order(weighing, first or Cut(0, (), None), reason, Kind.EXTRACT)
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

    # What is sent, and what is prepared.

    async def _sending(self, weighing: Weighing, decided: Plan) -> Sending:
        fold = chosen(decided)
        form = await weighing.form(fold) if fold is not None else weighing.as_it_came
        if form is None:
            return as_it_came(weighing.request)
        freed = 0
        if fold is not None and fold.id != weighing.last:
            freed = weighing.size(weighing.fold_in_use).tokens - form.sized.counted.count.tokens
        return Sending(form, weighing.size(None), freed, self._prepared(weighing, decided))

    def _prepared(self, weighing: Weighing, decided: Plan) -> Order | None:
        cut = decided.cut if isinstance(decided, Make) else decided.prepare
        if cut is None or self._is_being_made(weighing):
            return None
        known = weighing.request.sized.window.known
        strategy = self._policies.strategy(known, weighing.request.wishes)
        reason = Reason.HARD if isinstance(decided, Make) else Reason.SOFT
        if strategy != "summarize":
            return self._order(weighing, cut, reason, Kind.EXTRACT)
        return self._order(weighing, cut, reason, prefix=self._prefix(weighing, cut, chosen(decided)))

    def _is_being_made(self, weighing: Weighing) -> bool:
        """By this process, or by another that has answered the line's last request."""
        request = weighing.request
        if self._workshop.running(request.tenant, weighing.history, request.beside) is not None:
            return True
        lane = request.found.lane if request.found else None
        if lane is None or lane.making is None or lane.making not in weighing.history.chain:
            return False
        if self._settings.on_prefix and not _is_steady(request):
            return False  # what is being made may be for the instructions that were there before
        known = {fold.prefix for fold in weighing.folds}
        return lane.making not in known and self._workshop.is_fresh(lane.making_until)

    def _prefix(self, weighing: Weighing, cut: Cut, sent_with: Fold | None) -> Prefix | None:
        """What the upstream has seen last of what is to be folded, where a summary may be asked for on it."""
        request = weighing.request
        if not self._asks_on_prefix(request) or request.beside is None:
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
        kind: Kind = Kind.SUMMARY,
        *,
        prefix: Prefix | None = None,
    ) -> Order:
        request = weighing.request
        own, known = request.sized.model, request.sized.window.known
        by_user = known.origins.get("summary_model") is Origin.SETTING
        preferred = preferred_model(self._settings, known.facts.summary_model, by_user=by_user)
        writes = self._sizing.window_of(preferred or own).window
        window = self._sizing.window_of(own).window if writes.assumed else writes
        job = Job(
            weighing.history,
            cut,
            own,
            preferred,
            window.tokens,
            request.credentials,
            self._policies.role(weighing.history),
            self._settings.prompt,
            self._policies.settings.summary_max_tokens,
            request.query,
            prefix=prefix,
        )
        count = self._sizing.text_counter(request.sized)
        return Order(request.tenant, request.conversation.id, job, reason, kind, count)


def as_it_came(request: Request) -> Sending:
    return Sending(Form(request.chat, request.sized), request.sized.counted.count)


def refused_as_larger(request: Request, sending: Sending, asked: int | None) -> Request:
    """The same request, to be made smaller than it was if the upstream counts higher than we do. `asked` is
    what it has counted, of the prompt alone or with the answer that was declared.
    """
    sized = sending.form.sized
    counted = max(1, sized.counted.count.tokens)
    if not sized.budget.fits(sized.counted.count):
        return request  # no wonder: there was nothing shorter to send before the window was known
    if asked is None:
        return replace(request, underrated=request.underrated * _UNTOLD)
    declared = sized.declared or 0
    prompt = min((asked, asked - declared), key=lambda tokens: abs(tokens - counted))
    return replace(request, underrated=max(request.underrated, _SLACK * max(1.0, prompt / counted)))


def _is_steady(request: Request) -> bool:
    """Has the line's last request had the same instructions and tools?"""
    return request.found is not None and request.found.lane.beside == request.beside


def _may_start(request: Request) -> bool:
    lane = request.found.lane if request.found else None
    return lane is None or (lane.unused < MOST_UNUSED and lane.futile < MOST_FUTILE)
