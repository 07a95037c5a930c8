"""After an answer: how the conversation's line stands now, what was said in it, and what was done to it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.folds import Folds
from proxy.histories import Line
from proxy.lanes import Lane, Lanes, Relation, unused_folds
from proxy.metrics import Metrics
from proxy.naming import Naming
from proxy.records import Records
from proxy.request import Request
from proxy.sending import Begun, Sending
from proxy.tidings import Tidings

# Shares of the room that a conversation passes once.
FILLINGS = (0.5, 0.8, 1.0)
# A fold that frees less than this of the room was made in vain.
_LEAST_FREED = 0.1


@dataclass(frozen=True, slots=True)
class Books:
    lanes: Lanes
    folds: Folds
    records: Records
    tidings: Tidings
    metrics: Metrics
    naming: Naming

    def enter(self, request: Request, sending: Sending, begun: Begun | None) -> None:
        """`begun` is the fold that is being made for the line."""
        if request.line is None or request.found is None:
            return
        lane = _went_on(request, sending, request.found.lane)
        if begun is not None:
            lane = _with(lane, begun, request.line)
        self._tell(request, sending, lane)
        if sending.fold is not None:
            self.folds.used(request.tenant, sending.fold, time.time())
        if lane == request.found.lane and request.found.relation is Relation.REPEATED:
            return  # all of it is written down
        lane = self.records.file(request.tenant, request.line, lane, request.found.since)
        self.lanes.keep(request.tenant, request.line, lane)
        self.naming.soon(request.tenant, request.line, lane)

    def _tell(self, request: Request, sending: Sending, lane: Lane) -> None:
        assert request.found is not None
        before, relation = request.found.lane, request.found.relation
        tenant, conversation = request.tenant, request.conversation.id
        if relation is Relation.NEW:
            self.tidings.began(tenant, conversation)
        for passed in range(before.filled, lane.filled):
            self.tidings.filled(tenant, conversation, f"{FILLINGS[passed]:g}")
        sent = sending.form.sized.counted.count.tokens
        if sending.fold is not None and sending.fold.id != before.fold:
            self.tidings.used(tenant, conversation, sending.fold, sending.received.tokens - sent)
        grows = relation in (Relation.CONTINUED, Relation.REPEATED) and lane.fold == before.fold
        self.metrics.prefix(before.sent if grows else 0, sent)
        for warning in sending.warnings:
            self.tidings.warned(tenant, conversation, warning)


def _went_on(request: Request, sending: Sending, lane: Lane) -> Lane:
    sized = sending.form.sized
    fold = sending.fold or sending.would
    futile, unused = lane.futile, lane.unused
    if fold is not None and fold.id != lane.fold:
        futile = 0 if sending.freed >= _LEAST_FREED * sized.budget.room else futile + 1
    elif fold is not None:
        unused = 0  # a later request has used it: the client does not rewrite its history
    share = sending.received.tokens / request.sized.budget.room
    return replace(
        lane,
        conversation=request.conversation.id,
        fold=fold.id if fold else None,
        prefix=fold.prefix if fold else None,
        sent=sized.counted.count.tokens,
        beside=request.beside,
        filled=max(lane.filled, sum(share >= mark for mark in FILLINGS)),
        futile=futile,
        unused=unused,
    )


def _with(lane: Lane, begun: Begun, line: Line) -> Lane:
    return replace(lane, making=begun.prefix, making_until=begun.until, unused=unused_folds(lane, line))
