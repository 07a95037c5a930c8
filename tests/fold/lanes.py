"""A conversation carried on as its plans say, with a summary model that is done at once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from proxy.budget import Budget, Window, budget
from proxy.budget import Policy as Shares
from proxy.counting.anchors import Basis, Count
from proxy.fold.assemble import assembled, sent
from proxy.fold.history import History
from proxy.fold.plan import FoldPolicy, Keep, Known, Make, Plan, Reuse, Situation, plan
from proxy.fold.record import Fold, Kind, Trigger
from proxy.fold.tail import Cut
from tests.fold.chats import body_of, request_of

USUAL = FoldPolicy()
EIGHT_THOUSAND = budget(Window(8_000), 100, Shares())


def sure(tokens: int) -> Count:
    return Count(tokens, 0, Basis.ANCHORED)


def fold_of(
    past: History, covers: int, *kept: int, id: str = "", kind: Kind = Kind.SUMMARY, told: int = 200
) -> Fold:
    text = f"the first {covers}"
    summary = json.dumps({"role": "system", "content": text}).encode()
    return Fold(
        id=id or f"fold-{covers}",
        home=past.home,
        prefix=past.chain[covers],
        covers=covers,
        kept=kept,
        messages=(summary,),
        text=text,
        kind=kind,
        trigger=Trigger.AUTO,
        created=0.0,
        original_tokens=spoken_tokens(past, 0, covers),
        summary_tokens=told,
    )


def spoken_tokens(past: History, start: int, end: int) -> int:
    return sum(past.turns[position].tokens for position in past.spoken[start:end])


def size_of(past: History, fixed: int = 0, fold: Fold | None = None) -> Count:
    """Of the request as it came, or as it is sent with a fold."""
    if fold is None:
        return sure(fixed + sum(turn.tokens for turn in past.turns))
    instructions = sum(turn.tokens for turn in past.turns if turn.instructs)
    kept = sum(spoken_tokens(past, number, number + 1) for number in fold.kept)
    tail = spoken_tokens(past, fold.covers, past.length)
    return sure(fixed + instructions + fold.summary_tokens + kept + tail)


def situation(
    past: History,
    allowed: Budget,
    *folds: Fold,
    fixed: int = 0,
    last: str | None = None,
    policy: FoldPolicy = USUAL,
) -> Situation:
    known = [Known(fold, size_of(past, fixed, fold)) for fold in folds]
    return Situation(past, size_of(past, fixed), fixed, allowed, known, last, policy)


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    messages: list[bytes]
    size: Count
    fold: Fold | None


@dataclass(slots=True)
class Lane:
    allowed: Budget = EIGHT_THOUSAND
    fixed: int = 0
    policy: FoldPolicy = USUAL
    last: str | None = None
    made: int = 0
    folds: dict[bytes, Fold] = field(default_factory=dict)

    def send(self, past: History) -> Request:
        decided = self.plan(past)
        while isinstance(decided, Make) and decided.must:
            self._make(past, decided.cut)
            decided = self.plan(past)
        used, cut = _carried_out(decided)
        if cut is not None:
            self._make(past, cut)
        self.last = used.id if used else None
        return self._request(past, used)

    def plan(self, past: History) -> Plan:
        now = situation(
            past, self.allowed, *self.known(past), fixed=self.fixed, last=self.last, policy=self.policy
        )
        assert plan(now) == plan(now)
        return plan(now)

    def known(self, past: History) -> list[Fold]:
        return [self.folds[link] for link in past.chain if link in self.folds]

    def _make(self, past: History, cut: Cut) -> None:
        self.made += 1
        told = max(200, spoken_tokens(past, cut.base.covers if cut.base else 0, cut.covers) // 10)
        made = fold_of(past, cut.covers, *cut.kept, id=f"fold-{self.made}", told=told)
        assert self.folds.setdefault(made.prefix, made) is made  # or the plan was for something known

    def _request(self, past: History, used: Fold | None) -> Request:
        size = size_of(past, self.fixed, used)
        if used is None:
            return Request(body_of(past), [turn.raw for turn in past.turns], size, None)
        folded = assembled(request_of(past), past, used)
        assert folded is not None
        return Request(folded, sent(past, used), size, used)


def _carried_out(decided: Plan) -> tuple[Fold | None, Cut | None]:
    match decided:
        case Keep(prepare):
            return None, prepare
        case Reuse(fold, prepare):
            return fold, prepare
        case Make(cut, instead, _):
            return instead, cut
