"""Telling of folds: to Prometheus, to the log and to whoever listens. Never a word of what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog

from proxy.events import Event, Events
from proxy.fold.record import Fold
from proxy.metrics import Metrics
from proxy.usage import Usage

log = structlog.get_logger("tailfold")


class Reason(StrEnum):
    """Why a fold is made."""

    SOFT = "soft"  # ahead of time
    HARD = "hard"  # the conversation is full, but fits
    MUST = "must"  # the request would not fit
    OVERFLOW = "overflow"  # the upstream has refused it as too long


@dataclass(frozen=True, slots=True)
class Made:
    tenant: bytes
    conversation: str
    fold: Fold
    reason: Reason
    seconds: float


class Tidings:
    def __init__(self, metrics: Metrics, events: Events, *, tells: bool) -> None:
        self._metrics = metrics
        self._events = events
        self._tells = tells  # False: metrics only

    def made(self, made: Made) -> None:
        fold = made.fold
        self._metrics.fold_made(fold.kind, made.reason, fold.original_tokens / max(1, fold.summary_tokens))
        told = {
            "fold": fold.id,
            "strategy": fold.kind.value,
            "trigger": made.reason.value,
            "messages": fold.covers - len(fold.kept),
            "tokens_before": fold.original_tokens,
            "tokens_after": fold.summary_tokens,
            "seconds": round(made.seconds, 3),
        }
        self._tell("fold_made", made.tenant, made.conversation, told)

    def imagined(self, tenant: bytes, conversation: str, fold: Fold, reason: Reason) -> None:
        """In observe mode."""
        self._metrics.fold_observed(reason)
        told = {"trigger": reason.value, "messages": fold.covers - len(fold.kept)}
        self._tell("fold_observed", tenant, conversation, told)

    def failed(self, tenant: bytes, conversation: str, reason: Reason, why: str) -> None:
        self._metrics.fold_failed(reason)
        self._tell("fold_failed", tenant, conversation, {"trigger": reason.value, "why": why}, bad=True)

    def used(self, tenant: bytes, conversation: str, fold: Fold, saved: int) -> None:
        """For the first time in this conversation."""
        told = {"fold": fold.id, "strategy": fold.kind.value, "tokens_saved": saved}
        self._tell("fold_used", tenant, conversation, told)

    def warned(self, tenant: bytes, conversation: str, warning: str) -> None:
        self._tell("warning", tenant, conversation, {"warning": warning}, bad=True)

    def began(self, tenant: bytes, conversation: str) -> None:
        self._metrics.conversation_began()
        self._hear("conversation_began", tenant, conversation, {})

    def filled(self, tenant: bytes, conversation: str, share: str) -> None:
        self._metrics.conversation_filled(share)
        self._hear("conversation_filled", tenant, conversation, {"share": share})

    def asked(self, seconds: float, result: str, usage: Usage | None = None) -> None:
        """The summary model, once."""
        self._metrics.summary_asked(seconds, result, usage)

    def _tell(
        self, kind: str, tenant: bytes, conversation: str, told: Mapping[str, object], *, bad: bool = False
    ) -> None:
        if self._tells:
            (log.warning if bad else log.info)(kind, conversation=conversation, **told)
        self._hear(kind, tenant, conversation, told)

    def _hear(self, kind: str, tenant: bytes, conversation: str, told: Mapping[str, object]) -> None:
        if self._tells:
            self._events.tell(Event(kind, tenant, conversation, told))
