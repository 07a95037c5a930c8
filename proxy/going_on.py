"""Between two folds there is nothing to plan: a request goes out as the one before it."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from proxy.counting.anchors import Basis
from proxy.fold.assemble import folded, goes_on_whole
from proxy.folds import Folds
from proxy.histories import Line, unsized
from proxy.lanes import Lane
from proxy.request import Request
from proxy.sending import Sending, as_it_came
from proxy.sizing import Sizing
from proxy.weighing import Form
from proxy.windows.kept import Kept
from proxy.workshop import Workshop


class Plain(msgspec.Struct, frozen=True, array_like=True):
    """A model's template has refused the role of a summary."""

    refused: bool = True


class Forms:
    """Which models are told summaries in the plainer form."""

    def __init__(self, refused: Kept[Plain]) -> None:
        self._refused = refused

    def recalling(self, model: str) -> list[Awaitable[None]]:
        """A question for what another has found out."""
        return self._refused.recalling(model)

    def is_plain(self, request: Request) -> bool:
        return request.plainly or self._refused.get(request.sized.model) is not None

    def refuse(self, model: str) -> None:
        self._refused.put(model, Plain())


class GoingOn:
    def __init__(self, folds: Folds, sizing: Sizing, workshop: Workshop, forms: Forms) -> None:
        self._folds = folds
        self._sizing = sizing
        self._workshop = workshop
        self._forms = forms

    async def sending(self, request: Request) -> Sending | None:
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
        chat = folded(request.chat, history, fold, plainly=self._forms.is_plain(request))
        if chat is None or not goes_on_whole(history, fold):
            return None
        sized = await self._sizing.size_form(request.sized, chat, request.wishes.threshold)
        count, budget = sized.counted.count, request.sized.budget
        if count.basis is not Basis.ANCHORED or budget.past_hard(count):
            return None
        if budget.past_soft(count) and not self._is_prepared(request, lane):
            return None
        return Form(chat, sized, fold)

    def _is_prepared(self, request: Request, lane: Lane) -> bool:
        """The next fold is being made, or there and waits until it is needed."""
        assert request.line is not None
        prefix = lane.prospects.making
        if prefix is None or prefix == lane.prefix or prefix not in request.line.chain:
            return False
        made = self._folds.at_hand(request.tenant, prefix, request.beside)
        return made is not None or self._workshop.is_making(request.tenant, prefix, request.beside)
