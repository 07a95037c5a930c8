"""Folds being made: one per prefix, whoever asks, in this process and in all that share its store."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import structlog

from proxy.callers import Callers
from proxy.fold.history import History
from proxy.fold.record import Fold, Kind, address_of
from proxy.folds import Folds
from proxy.making import Job, Maker
from proxy.ports import Store
from proxy.recent import Recent
from proxy.spending import Spending
from proxy.summarizer import TOO_LONG, Summarizer, SummaryFailed, SummaryRefused, Wanted, Written
from proxy.tasks import Tasks
from proxy.tidings import Made, Reason, Tidings

# A claim is held for so long and renewed while the work goes on: where its holder dies, another takes over.
_LEASE = 6.0
_RENEWALS = 3  # in the time of one lease
_LOOKED_AFTER_EVERY = 0.1

# After so many seconds a summary model that has failed is asked again, twice as many after each failure.
_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 600.0
# For so many seconds a model that writes nothing on a conversation's own prefix is asked in the usual way.
_USUAL_WAY = 600.0
_MOST_DOUBLINGS = 16
_CALLERS = 4096
_BUDGET = "budget"
_DEFECT = "defect"

log = structlog.get_logger("tailfold")


@dataclass(frozen=True, slots=True)
class Order:
    """A fold that is wanted, for whom and why."""

    tenant: bytes
    conversation: str
    job: Job
    reason: Reason
    kind: Kind  # a summary, or an extract that needs no model
    count: Callable[[str], int]  # the conversation's own tokens of a text

    @property
    def key(self) -> bytes:
        return self.tenant + self.job.address


@dataclass(frozen=True, slots=True)
class Work:
    """A fold that is being made."""

    prefix: bytes
    task: asyncio.Task[Fold | None]


@dataclass(frozen=True, slots=True)
class _Pause:
    until: float
    failures: int


class Workshop:
    def __init__(
        self,
        folds: Folds,
        store: Store,
        tasks: Tasks,
        summarizer: Summarizer,
        spending: Spending,
        tidings: Tidings,
        callers: Callers,
        *,
        patience: float,
        clock: Callable[[], float],
        lease: float = _LEASE,
    ) -> None:
        self._patience = patience
        self._lease = lease
        self._folds = folds
        self._store = store
        self._tasks = tasks
        self._summarizer = summarizer
        self._spending = spending
        self._tidings = tidings
        self._callers = callers
        self._clock = clock
        self._running: dict[bytes, asyncio.Task[Fold | None]] = {}
        self._pauses: Recent[bytes, _Pause] = Recent(_CALLERS)
        self._usual_way: Recent[bytes, float] = Recent(_CALLERS)  # until when

    def running(self, tenant: bytes, history: History, beside: bytes | None = None) -> Work | None:
        """A fold of this history, of whatever length, that is being made and may stand beside this."""
        if not self._running:
            return None
        for value in reversed(history.chain):
            for each in (beside, None):
                if (task := self._running.get(tenant + address_of(value, each))) is not None:
                    return Work(value, task)
        return None

    def is_making(self, tenant: bytes, prefix: bytes, beside: bytes | None = None) -> bool:
        return any(tenant + address_of(prefix, each) in self._running for each in (beside, None))

    def writes_on_prefixes(self, tenant: bytes, model: str) -> bool:
        """As far as it has not been seen to refuse that."""
        return self._clock() >= (self._usual_way.get(_name(tenant, model)) or 0.0)

    async def is_made_elsewhere(
        self, tenant: bytes, home: bytes, prefix: bytes, beside: bytes | None
    ) -> bool:
        """Has another process laid claim to it, or been done with it a moment ago?"""
        holder = secrets.token_bytes(8)
        for address in (address_of(prefix, each) for each in (beside, None)):
            if not await self._store.claim(tenant, address, holder, ttl=_LOOKED_AFTER_EVERY):
                return True
            await self._store.release(tenant, address, holder)
        return await self._folds.at(tenant, home, prefix, beside) is not None

    def is_fresh(self, until: float) -> bool:
        """Of a time at which something should have been done."""
        return self._clock() < until

    def until(self) -> float:
        """By when a fold that is begun now is there, or is not to be expected any more."""
        return self._clock() + self._patience

    def hesitates(self, tenant: bytes, model: str) -> str | None:
        """Why no model is asked for a summary now."""
        pause = self._pauses.get(_name(tenant, model))
        if pause is not None and self._clock() < pause.until:
            return "summary_model_failing"
        return "summary_budget" if self._spending.is_spent(tenant) else None

    def begin(self, order: Order) -> asyncio.Task[Fold | None]:
        """The fold, or None where it could not be made; nobody who leaves takes it with him."""
        if (task := self._running.get(order.key)) is None:
            task = self._tasks.start(self._worked(order), name="fold")
            self._running[order.key] = task
            task.add_done_callback(lambda _: self._running.pop(order.key, None))
        return task

    def maker(self, order: Order) -> Maker:
        metered = _Metered(self._summarizer, order.tenant, self._spending, self._tidings, self._callers)
        return Maker(metered, order.count)

    async def keep(self, order: Order, fold: Fold, began: float | None = None) -> Fold:
        """The fold of this prefix from now on, which may be one that was there before."""
        winner = await self._folds.keep(order.tenant, fold)
        if winner.id == fold.id:
            seconds = perf_counter() - began if began is not None else 0.0
            self._tidings.made(Made(order.tenant, order.conversation, fold, order.reason, seconds))
        return winner

    async def idle(self) -> None:
        """Wait for what is being made."""
        if self._running:
            await asyncio.wait(self._running.values())

    async def _worked(self, order: Order) -> Fold | None:
        began = perf_counter()
        try:
            async with self._claimed(order) as made_elsewhere:
                return made_elsewhere or await self.keep(order, await self._made(order), began)
        except SummaryFailed as failure:
            if failure.reason != _BUDGET:
                self._pause(order, failure)
            self._tidings.failed(order.tenant, order.conversation, order.reason, failure.reason)
            return None
        except Exception as defect:  # noqa: BLE001 - those who wait for it have other ways to go
            # Neither the message nor the values of the traceback: they may quote a conversation.
            log.error("a fold could not be made", kind=type(defect).__name__)
            self._pause(order, SummaryFailed(_DEFECT))
            self._tidings.failed(order.tenant, order.conversation, order.reason, _DEFECT)
            return None

    async def _made(self, order: Order) -> Fold:
        maker = self.maker(order)
        if order.kind is not Kind.SUMMARY:
            return await maker.extract(order.job)
        await self._spending.recall(order.tenant)
        if self._spending.is_spent(order.tenant):
            raise SummaryFailed(_BUDGET)
        fold = await self._summary(order, maker)
        self._pauses.put(_name(order.tenant, order.job.model), _Pause(0.0, 0))
        return fold

    async def _summary(self, order: Order, maker: Maker) -> Fold:
        job = order.job
        if job.prefix is not None:
            try:
                return await maker.on_prefix(job, job.prefix)
            except SummaryRefused as refused:
                if refused.reason != TOO_LONG:
                    self._usual_way.put(_name(order.tenant, job.model), self._clock() + _USUAL_WAY)
        return await maker.summary(replace(job, prefix=None))

    def _pause(self, order: Order, failure: SummaryFailed) -> None:
        name = _name(order.tenant, order.job.model)
        before = self._pauses.get(name)
        failures = before.failures + 1 if before else 1
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, _MOST_DOUBLINGS))
        self._pauses.put(name, _Pause(self._clock() + max(pause, failure.pause or 0.0), failures))

    @asynccontextmanager
    async def _claimed(self, order: Order) -> AsyncIterator[Fold | None]:
        """The work is ours to do; or what another process has made of it meanwhile."""
        holder = secrets.token_bytes(8)
        while not await self._claim(order, holder):
            if (made := await self._made_by_another(order)) is not None:
                yield made
                return
            await asyncio.sleep(_LOOKED_AFTER_EVERY)
        renewing = self._tasks.start(self._renew(order, holder), name="renew a claim")
        try:
            yield await self._made_by_another(order)
        finally:
            renewing.cancel()
            await self._store.release(order.tenant, order.job.address, holder)

    async def _made_by_another(self, order: Order) -> Fold | None:
        job = order.job
        return await self._folds.at(order.tenant, job.history.home, job.prefix_value, job.beside)

    async def _claim(self, order: Order, holder: bytes) -> bool:
        return await self._store.claim(order.tenant, order.job.address, holder, ttl=self._lease)

    async def _renew(self, order: Order, holder: bytes) -> None:
        while True:
            await asyncio.sleep(self._lease / _RENEWALS)
            await self._claim(order, holder)


class _Metered:
    """A summary model whose calls are paid for by a caller."""

    def __init__(
        self, inner: Summarizer, tenant: bytes, spending: Spending, tidings: Tidings, callers: Callers
    ) -> None:
        self._inner = inner
        self._tenant = tenant
        self._spending = spending
        self._tidings = tidings
        self._callers = callers

    async def write(self, wanted: Wanted) -> Written:
        began = perf_counter()
        try:
            written = await self._inner.write(wanted)
        except SummaryFailed as failure:
            self._tidings.asked(perf_counter() - began, failure.reason)
            raise
        self._tidings.asked(perf_counter() - began, "ok", written.usage)
        if written.in_callers_name:
            self._callers.accept(self._tenant)
        if written.usage is not None:
            self._spending.spend(self._tenant, written.usage.prompt + written.usage.completion)
        return written


def _name(tenant: bytes, model: str) -> bytes:
    return tenant + model.encode(errors="surrogatepass")
