"""What Prometheus is told. Label values are few and known beforehand: nothing a client sends becomes one."""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from proxy.exchange import Exchange, Route, Size, Stage
from proxy.usage import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
OTHER = "other"
_ERRORS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_SHARES = (0.1, 0.25, 0.5, 0.65, 0.8, 0.9, 0.95, 1, 1.5, 3)
_RATIOS = (1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 50, 100)
_COUNTING = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_STORE = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
TOKEN_KINDS = ("uncached", "cache_read", "output")
SUMMARY_TOKEN_KINDS = ("input", "cache_read", "output")  # what was read from a cache is part of the input


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "requests_total",
            "Requests by route, model and the status that the client saw.",
            "route",
            "model",
            "status",
        )
        self._seconds = self._histogram(
            "request_seconds", "From a request's head to the last byte of its answer.", "route", _SECONDS
        )
        self._first_byte = self._histogram(
            "first_byte_seconds", "From a request's head to the first byte of its answer.", "route", _SECONDS
        )
        self._overhead = self._counter(
            "overhead_seconds_total",
            "Tailfold's own time in requests; waiting for others is not in it.",
            "stage",
        )
        self._tokens = self._counter(
            "upstream_tokens_total", "Tokens as the upstream reported them, by kind.", "model", "kind"
        )
        self._unreported = self._counter(
            "usage_missing_total", "Successful chat answers that did not say what they cost."
        )
        self._errors = self._counter(
            "errors_total", "Errors of Tailfold's own, and clients that left.", "code"
        )
        self._resends = self._counter("upstream_resends_total", "Requests sent a second time.", "reason")
        self._estimated = self._counter(
            "estimated_input_tokens_total", "Input tokens of answered requests as they were counted.", "model"
        )
        self._reported = self._counter(
            "reported_input_tokens_total", "Input tokens of the same requests as they were billed.", "model"
        )
        self._estimate_error = self._histogram(
            "estimate_error_ratio", "How far a count was from the bill, as a share of it.", "basis", _ERRORS
        )
        self._counting = self._histogram(
            "counting_seconds", "From a chat request to its count.", "basis", _COUNTING
        )
        self._utilization = self._histogram(
            "context_utilization_ratio", "Counted tokens as a share of the room.", "origin", _SHARES
        )
        self._truncations = self._counter(
            "silent_truncations_total", "Answers billed for far less than was sent.", "model"
        )
        self._overflows = self._counter("overflows_total", "Requests refused by the upstream as too long.")
        self._folds = self._counter(
            "folds_total", "Folds by strategy, trigger and result.", "strategy", "trigger", "result"
        )
        self._ratio = self._histogram(
            "fold_ratio", "Tokens that a fold stands for, for one of its own.", "strategy", _RATIOS
        )
        self._saved = self._counter(
            "saved_input_tokens_total", "Tokens that were received and not sent.", "model"
        )
        self._actions = self._counter("actions_total", "Chat requests by what was done to them.", "action")
        self._warnings = self._counter("warnings_total", "Chat answers that carried a warning.", "warning")
        self._summary_seconds = self._histogram(
            "summary_seconds", "How long calls of the summary model took.", "result", _SECONDS
        )
        self._summary_tokens = self._counter(
            "summary_tokens_total", "Tokens that summaries have cost, as billed.", "kind"
        )
        self._summary_failures = self._counter(
            "summary_failures_total", "Calls of the summary model that gave nothing.", "reason"
        )
        self._waited = self._counter(
            "fold_wait_seconds_total",
            "Time that requests have waited for a fold without which they did not fit.",
        )
        self._avoided = self._counter(
            "overflows_avoided_total",
            "Requests that were too long as they came, and fitted as they were sent.",
        )
        self._recovered = self._counter(
            "overflows_recovered_total", "Requests refused as too long, folded and answered after all."
        )
        self._conversations = self._counter("conversations_total", "Conversations that began.")
        self._filled = self._counter(
            "conversations_filled_total", "Conversations that came to fill a share of the room.", "share"
        )
        self._prefix = self._counter(
            "prefix_tokens_total", "Tokens sent: repeating the conversation's last request, or new.", "kind"
        )
        self._outages = self._counter("store_outages_total", "Times the store could not be used.", "reason")
        self._store_up = Gauge(
            "tailfold_store_up",
            "1 while the store can be used. Of several workers the one that fares worst.",
            multiprocess_mode="livemin",
            registry=self.registry,
        )
        self._store_up.set(1)
        self._store_seconds = self._histogram(
            "store_seconds", "How long the store took to answer, by what it was asked.", "operation", _STORE
        )
        self._foreign = self._counter(
            "store_foreign_values_total", "Values in the store that are not Tailfold's, or damaged: not used."
        )
        self.in_flight = self._gauge("in_flight_requests", "Requests being handled now.")
        self.in_flight_bytes = self._gauge("in_flight_bytes", "Bytes of request bodies held now.")
        self.connections = self._gauge("client_connections", "Client connections open now.")
        # Looking up a labelled child costs more than counting, so the ones in use are kept at hand.
        self._seconds_of = {route: self._seconds.labels(route.value) for route in Route}
        self._first_byte_of = {route: self._first_byte.labels(route.value) for route in Route}
        self._overhead_of = {stage: self._overhead.labels(stage.value) for stage in Stage}
        self._requests_of = cache(
            lambda route, model, status: self._requests.labels(route, model, str(status))
        )
        self._repeated, self._new = self._prefix.labels("repeated"), self._prefix.labels("new")
        self._actions_of = cache(self._actions.labels)
        self._counting_of = cache(self._counting.labels)
        self._utilization_of = cache(self._utilization.labels)
        self._store_seconds_of = cache(self._store_seconds.labels)
        self._error_of = cache(self._estimate_error.labels)
        self._billed_of = cache(lambda model: (self._estimated.labels(model), self._reported.labels(model)))
        self._tokens_of = cache(lambda model: tuple(self._tokens.labels(model, kind) for kind in TOKEN_KINDS))

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"tailfold_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, label: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"tailfold_{name}", meaning, (label,), buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        # Of several workers, those that are alive are added up.
        return Gauge(f"tailfold_{name}", meaning, multiprocess_mode="livesum", registry=self.registry)

    def observe(self, exchange: Exchange, model: str, seconds: float) -> None:
        """Count one finished exchange; `model` is a known name or `other`."""
        route = exchange.route
        self._requests_of(route, model, exchange.status).inc()
        self._seconds_of[route].observe(seconds)
        if exchange.first_byte is not None:
            self._first_byte_of[route].observe(exchange.first_byte - exchange.started)
        for stage, spent in exchange.stages.items():
            self._overhead_of[stage].inc(spent)
        if exchange.error is not None:
            self._errors.labels(exchange.error).inc()
        if exchange.usage is not None:
            self._count_tokens(model, exchange.usage)
        if exchange.size is not None:
            self._size(exchange.size, model, exchange.usage)
            self._folding(exchange, exchange.size, model)

    def _count_tokens(self, model: str, usage: Usage) -> None:
        uncached, cache_read, output = self._tokens_of(model)
        uncached.inc(usage.prompt - usage.cached)
        output.inc(usage.completion)
        if usage.cached:
            cache_read.inc(usage.cached)

    def _size(self, size: Size, model: str, usage: Usage | None) -> None:
        self._counting_of(size.basis).observe(size.seconds)
        self._utilization_of(size.window_origin).observe(size.tokens / size.room)
        if size.truncated:
            self._truncations.labels(model).inc()
        elif usage is not None and usage.prompt:
            estimated, reported = self._billed_of(model)
            estimated.inc(size.tokens)
            reported.inc(usage.prompt)
            self._error_of(size.basis).observe(abs(size.tokens - usage.prompt) / usage.prompt)

    def fold_made(self, strategy: str, trigger: str, ratio: float) -> None:
        self._folds.labels(strategy, trigger, "made").inc()
        self._ratio.labels(strategy).observe(ratio)

    def fold_failed(self, trigger: str) -> None:
        self._folds.labels("summary", trigger, "failed").inc()

    def fold_observed(self, trigger: str) -> None:
        self._folds.labels("summary", trigger, "observed").inc()

    def _folding(self, exchange: Exchange, size: Size, model: str) -> None:
        for action in exchange.actions:
            self._actions_of(action).inc()
        for warning in exchange.warnings:
            self._warnings.labels(warning).inc()
        if exchange.avoided and 200 <= exchange.status < 300:
            self._avoided.inc()
        if size.received > size.tokens and 200 <= exchange.status < 300:
            self._saved.labels(model).inc(size.received - size.tokens)

    def prefix(self, repeated: int, sent: int) -> None:
        self._repeated.inc(min(repeated, sent))
        self._new.inc(max(0, sent - repeated))

    def waited_for_a_fold(self, seconds: float) -> None:
        self._waited.inc(seconds)

    def overflow_recovered(self) -> None:
        self._recovered.inc()

    def conversation_began(self) -> None:
        self._conversations.inc()

    def conversation_filled(self, share: str) -> None:
        self._filled.labels(share).inc()

    def summary_asked(self, seconds: float, result: str, usage: Usage | None) -> None:
        well = result == "ok"
        self._summary_seconds.labels("ok" if well else "failed").observe(seconds)
        if not well:
            self._summary_failures.labels(result).inc()
        if usage is not None:
            for kind, tokens in zip(
                SUMMARY_TOKEN_KINDS, (usage.prompt, usage.cached, usage.completion), strict=True
            ):
                self._summary_tokens.labels(kind).inc(tokens)

    def overflowed(self) -> None:
        self._overflows.inc()

    def store_outage(self, reason: str) -> None:
        self._outages.labels(reason).inc()
        if reason != "corrupt":  # a fresh file is in the place of a corrupt one already
            self._store_up.set(0)

    def store_back(self) -> None:
        self._store_up.set(1)

    def store_asked(self, operation: str, seconds: float) -> None:
        self._store_seconds_of(operation).observe(seconds)

    def store_foreign(self, values: int) -> None:
        self._foreign.inc(values)

    def usage_missing(self) -> None:
        self._unreported.inc()

    def refused(self, code: str) -> None:
        """Count an error that never became a request."""
        self._errors.labels(code).inc()

    def resent(self, reason: str) -> None:
        self._resends.labels(reason).inc()

    def exposition(self) -> bytes:
        """All metrics as text; with several workers, those of all of them."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
