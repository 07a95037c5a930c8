"""The sizes of one request: as it came, and with each fold that belongs to it.

What is chosen is counted as it will be sent, by the one counter; for the others their turns are added up,
which is enough to see whether they are worth a closer look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proxy.budget import Budget, Size
from proxy.counting.anchors import Basis
from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.estimate import NOTHING, Estimate
from proxy.counting.prompt import OUTSIDE_THE_CHAIN
from proxy.fold.assemble import folded, sent_before
from proxy.fold.plan import FoldPolicy, Keep, Known, Make, Plan, Reuse, Situation, plan
from proxy.fold.record import Fold
from proxy.histories import history_of
from proxy.messages import ChatRequest
from proxy.request import Request
from proxy.sizing import Sized, Sizing

# A bill that says more than this is about something else, such as media.
_MOST_SCALED = 2.0
# A count is hardly ever too high by more.
_DOUBTFUL = 0.9
# And what was only added up, by more than this.
_HOPELESS = 0.5


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
        self._scales = _scales(request)
        self.history = history_of(request.line, self._scales.instructing, self._scales.speaking)
        self.budget = _stricter(request.sized.budget, request.underrated)
        self.policy = policy
        self._sizing = sizing
        self._plainly = plainly
        self._counts = counts
        self._folds: dict[str, Fold] = {}
        self._forms: dict[str, Form] = {}
        # Of tools and the answer's format: what is billed beside all messages.
        self.fixed = max(0, self._scales.outside - self._instructions())

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
            chat = folded(self.request.chat, self.history, fold, plainly=self._plainly)
            if chat is None:
                self._folds.pop(fold.id, None)
                return None
            sized = await self._sizing.size_form(self.request.sized, chat, self.request.wishes.threshold)
            self._forms[fold.id] = Form(chat, self._scales.applied(sized), fold)
        return self._forms[fold.id]

    def size(self, fold: Fold | None) -> Size:
        if fold is None:
            return self.request.sized.counted.count
        form = self._forms.get(fold.id)
        return form.sized.counted.count if form else self._summed(fold)

    def presses(self, decided: Plan) -> bool:
        """Would what is sent not fit the window, as far as anybody has said how large that is?"""
        return self.budget.may_fold and not self.budget.fits(self.size(chosen(decided)))

    def may_fit(self, decided: Plan) -> bool:
        """Is it so near to fitting that the upstream may take it?"""
        return _DOUBTFUL * self.size(chosen(decided)).tokens <= self.budget.largest

    async def fits_with(self, fold: Fold) -> bool:
        if _HOPELESS * self._summed(fold).tokens > self.budget.largest:
            return False  # counting megabytes takes its time
        form = await self.form(fold)
        return form is not None and self.budget.fits(form.sized.counted.count)

    def beside(self, covers: int, kept: Iterable[int]) -> int:
        """Tokens of all that is sent with a fold of these but for the fold itself."""
        turns, spoken = self.history.turns, self.history.spoken
        tail = sum(turns[place].tokens for place in spoken[covers:])
        pinned = sum(turns[spoken[number]].tokens for number in kept)
        return self.fixed + self._instructions() + tail + pinned

    def sent_before(self, number: int, fold: Fold | None) -> tuple[list[bytes], int]:
        """Of what is sent with a fold, all that stands before a spoken turn of its tail; and its tokens."""
        messages = sent_before(self.history, fold, number, plainly=self._plainly)
        after = sum(turn.tokens for turn in self.history.turns[self.history.position(number) :])
        return messages, max(0, self.size(fold).tokens - after)

    def _summed(self, fold: Fold) -> Summed:
        tokens = self.beside(fold.covers, fold.kept) + fold.summary_tokens - self._left_out(fold)
        counted = self.request.sized.counted.count
        return Summed(tokens, round(tokens * (counted.at_most / max(1, counted.tokens))))

    def _left_out(self, fold: Fold) -> int:
        """Of kept turns that are sent shorter than they are."""
        turns = {number: self.history.turns[self.history.spoken[number]] for number in fold.shrunk}
        return sum(
            int(turn.tokens * max(0.0, 1 - len(fold.shrunk[number]) / len(turn.raw)))
            for number, turn in turns.items()
        )

    def _situation(self) -> Situation:
        known = [Known(fold, self.size(fold)) for fold in self._folds.values()]
        return Situation(
            self.history, self.size(None), self.fixed, self.budget, known, self.last, self.policy
        )

    def _instructions(self) -> int:
        return sum(turn.tokens for turn in self.history.turns if turn.instructs)


@dataclass(frozen=True, slots=True)
class _Scales:
    """How the estimates of single messages relate to what is known of them all together: a bill for most of
    a conversation says more than weights that may have been learned from other texts.
    """

    calibration: Calibration
    outside: int  # tokens of instructions, tools and the answer's format
    estimated: Estimate  # of the same
    of_instructions: float = 1.0
    of_speech: float = 1.0

    def instructing(self, estimate: Estimate) -> float:
        return self.of_instructions * self.calibration.tokens(estimate)

    def speaking(self, estimate: Estimate) -> float:
        return self.of_speech * self.calibration.tokens(estimate)

    def applied(self, sized: Sized) -> Sized:
        """The same for a form of the request for which no bill is known yet."""
        counted = sized.counted
        if counted.prompt is None or counted.count.basis not in (Basis.OPENING, Basis.COLD):
            return sized
        # Where the summary is an instruction, it stands outside the chain as they do.
        added = counted.prompt.outside.estimate - self.estimated + counted.prompt.sums[-1]
        tokens = self.outside + max(0, round(self.speaking(added)))
        # What is not known of it was estimated as its tokens were, and is off by as much.
        uncertainty = round(self.of_speech * counted.count.uncertainty)
        count = replace(counted.count, tokens=tokens, uncertainty=uncertainty)
        return replace(sized, counted=replace(counted, count=count))


def _scales(request: Request) -> _Scales:
    assert request.line is not None
    counted = request.sized.counted
    if counted.prompt is None or counted.known is None:
        return _Scales(first_calibration(1.0), 0, NOTHING)
    calibration, opening = counted.known.calibration, counted.known.opening
    estimated = counted.prompt.outside.estimate
    guessed = calibration.tokens(estimated)
    outside = round(opening.tokens if opening is not None else guessed)
    told = sum(
        calibration.tokens(message.estimate)
        for message in request.line.measured.messages
        if message.role in OUTSIDE_THE_CHAIN
    )
    of_instructions = min(1.0, outside / told) if told > 0 else 1.0
    spoken = calibration.tokens(counted.prompt.sums[-1])
    if counted.count.basis is not Basis.ANCHORED or spoken <= 0:
        return _Scales(calibration, outside, estimated, of_instructions)
    ratio = (counted.count.tokens - outside) / spoken
    of_speech = min(_MOST_SCALED, max(1 / _MOST_SCALED, ratio))
    return _Scales(calibration, outside, estimated, of_instructions, of_speech)


def chosen(decided: Plan) -> Fold | None:
    """What the request is sent with at once."""
    match decided:
        case Keep():
            return None
        case Reuse(fold, _):
            return fold
        case Make(_, instead, _):
            return instead


def _stricter(budget: Budget, underrated: float) -> Budget:
    """What an upstream counts higher than we do fits only where it looks so much smaller."""
    if underrated <= 1:
        return budget
    room, hard, soft, largest = (
        max(1, int(tokens / underrated)) for tokens in (budget.room, budget.hard, budget.soft, budget.largest)
    )
    return replace(budget, room=room, hard=hard, soft=soft, largest=largest)
