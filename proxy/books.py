"""After an answer: how the conversation's line stands now, what was said in it, and what was done to it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.folds import Folds
from proxy.hearsay import Hearsay
from proxy.lanes import Found, Lane, Lanes, Relation
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
    hearsay: Hearsay
    folds: Folds
    records: Records
    tidings: Tidings
    metrics: Metrics
    naming: Naming

    def enter(self, request: Request, sending: Sending, begun: Begun | None) -> None:
        """`begun` is the fold that is being made for the line."""
        if request.line is None or request.found is None:
            return
        lane = _went_on(request, sending, request.found)
        if begun is not None:
            lane = replace(lane, prospects=lane.prospects.began(begun.prefix, begun.until))
        self.hearsay.answered(
            request.tenant, request.conversation, request.line.chain, begun.prefix if begun else None
        )
        self._tell(request, sending, lane)
        if sending.fold is not None:
            self.folds.used(request.tenant, sending.fold, time.time())
        if lane == request.found.lane and request.found.relation is Relation.REPEATED:
            return  # all of it is written down
        lane = self.records.file(request.tenant, request.line, lane, request.found.since)
        self.lanes.keep(request.tenant, request.conversation, request.line, lane)
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
        grows = relation in (Relation.CONTINUED, Relation.REPEATED) and lane.fold == before.fold
        self.metrics.prefix(before.sent if grows else 0, sent)
        for warning in sending.warnings:
            self.tidings.warned(tenant, conversation, warning)


def _went_on(request: Request, sending: Sending, found: Found) -> Lane:
    sized, lane = sending.form.sized, found.lane
    fold = sending.fold or sending.would
    prospects, reusing = lane.prospects, fold is not None and fold.id == lane.fold
    if fold is not None and not reusing:
        prospects = prospects.folded(enough=sending.freed >= _LEAST_FREED * sized.budget.room)
    if found.relation is Relation.CONTINUED:
        prospects = prospects.went_on(reusing=reusing)
    share = sending.received.tokens / request.sized.budget.room
    return replace(
        lane,
        conversation=request.conversation.id,
        fold=fold.id if fold else None,
        prefix=fold.prefix if fold else None,
        sent=sized.counted.count.tokens,
        beside=request.beside,
        filled=max(lane.filled, sum(share >= mark for mark in FILLINGS)),
        prospects=prospects,
    )
