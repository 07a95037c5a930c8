"""The sizes of one request: as it came, and with each fold that belongs to it.

What is chosen is counted as it will be sent, by the one counter; for the others their turns are added up,
which is enough to see whether they are worth a closer look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proxy.budget import Budget, Size
from proxy.counting.calibration import Calibration, first_calibration
from proxy.fold.assemble import array, assembled
from proxy.fold.plan import FoldPolicy, Keep, Known, Make, Plan, Reuse, Situation, plan
from proxy.fold.record import Fold
from proxy.histories import history_of
from proxy.messages import ChatRequest
from proxy.request import Request
from proxy.sizing import Sized, Sizing


@dataclass(frozen=True, slots=True)
class Summed:
    """A size that was added up and not counted."""

    tokens: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Form:
    """A request as it would be sent."""

    chat: ChatRequest
    sized: Sized
    fold: Fold | None = None


class Weighing:
    def __init__(
        self, request: Request, sizing: Sizing, policy: FoldPolicy, *, plainly: bool, counts: bool = True
    ) -> None:
        """`counts` is false where nothing will be sent: then adding up must do."""
        assert request.line is not None
        self.request = request
        self.history = history_of(request.line, _calibration(request).tokens)
        self.budget = _stricter(request.sized.budget, request.underrated)
        self.policy = policy
        self._sizing = sizing
        self._plainly = plainly
        self._counts = counts
        self._folds: dict[str, Fold] = {}
        self._forms: dict[str, Form] = {}
        self.fixed = self._fixed()

    @property
    def folds(self) -> list[Fold]:
        return list(self._folds.values())

    @property
    def last(self) -> str | None:
        """The fold that the line's last request was sent with."""
        return self.request.found.lane.fold if self.request.found else None

    @property
    def fold_in_use(self) -> Fold | None:
        return self._folds.get(self.last or "")

    @property
    def as_it_came(self) -> Form:
        return Form(self.request.chat, self.request.sized)

    def add(self, fold: Fold) -> None:
        self._folds[fold.id] = fold

    async def plan(self) -> Plan:
        """Made anew until what would be sent has been counted as it would be sent."""
        if not self._counts:
            return plan(self._situation())
        if (in_use := self.fold_in_use) is not None:
            await self.form(in_use)
        while True:
            decided = plan(self._situation())
            fold = chosen(decided)
            if fold is None or fold.id in self._forms or await self.form(fold) is None:
                return decided

    async def form(self, fold: Fold) -> Form | None:
        """The request with this fold. None where it cannot be spliced into the client's bytes."""
        if fold.id not in self._forms:
            body = assembled(self.request.chat, self.history, fold, plainly=self._plainly)
            if body is None:
                self._folds.pop(fold.id, None)
                return None
            messages = array(self.history, fold, plainly=self._plainly)
            chat = replace(self.request.chat, raw=body, messages=messages)
            sized = await self._sizing.size(self.request.tenant, chat, self.request.wishes.threshold)
            self._forms[fold.id] = Form(chat, sized, fold)
        return self._forms[fold.id]

    def size(self, fold: Fold | None) -> Size:
        if fold is None:
            return self.request.sized.counted.count
        form = self._forms.get(fold.id)
        return form.sized.counted.count if form else self._summed(fold)

    def presses(self, decided: Plan) -> bool:
        """Would what is sent not fit the window, as far as anybody has said how large that is?"""
        return self.budget.may_fold and not self.budget.fits(self.size(chosen(decided)))

    async def fits_with(self, fold: Fold) -> bool:
        form = await self.form(fold)
        return form is not None and self.budget.fits(form.sized.counted.count)

    def beside(self, covers: int, kept: Iterable[int]) -> int:
        """Tokens of all that is sent with a fold of these but for the fold itself."""
        turns, spoken = self.history.turns, self.history.spoken
        tail = sum(turns[place].tokens for place in spoken[covers:])
        pinned = sum(turns[spoken[number]].tokens for number in kept)
        return self.fixed + self._instructions() + tail + pinned

    def _summed(self, fold: Fold) -> Summed:
        tokens = self.beside(fold.covers, fold.kept) + fold.summary_tokens
        counted = self.request.sized.counted.count
        return Summed(tokens, round(tokens * (counted.at_most / max(1, counted.tokens))))

    def _situation(self) -> Situation:
        known = [Known(fold, self.size(fold)) for fold in self._folds.values()]
        return Situation(
            self.history, self.size(None), self.fixed, self.budget, known, self.last, self.policy
        )

    def _instructions(self) -> int:
        return sum(turn.tokens for turn in self.history.turns if turn.instructs)

    def _fixed(self) -> int:
        """Of tools and the answer's format: what is billed beside all messages."""
        counted = self.request.sized.counted
        if counted.prompt is None or counted.known is None:
            return 0
        opening, calibration = counted.known.opening, counted.known.calibration
        beside = opening.tokens if opening else calibration.tokens(counted.prompt.outside.estimate)
        return max(0, round(beside) - self._instructions())


def chosen(decided: Plan) -> Fold | None:
    """What the request is sent with at once."""
    match decided:
        case Keep():
            return None
        case Reuse(fold, _):
            return fold
        case Make(_, instead, _):
            return instead


def _calibration(request: Request) -> Calibration:
    known = request.sized.counted.known
    return known.calibration if known else first_calibration(1.0)


def _stricter(budget: Budget, underrated: float) -> Budget:
    """What an upstream counts higher than we do fits only where it looks so much smaller."""
    if underrated <= 1:
        return budget
    room, hard, soft, largest = (
        max(1, int(tokens / underrated)) for tokens in (budget.room, budget.hard, budget.soft, budget.largest)
    )
    return replace(budget, room=room, hard=hard, soft=soft, largest=largest)
