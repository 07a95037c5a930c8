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
_COUNTING = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
TOKEN_KINDS = ("uncached", "cache_read", "output")


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
        self._outages = self._counter("store_outages_total", "Times the store could not be used.", "reason")
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
        self._counting_of = cache(self._counting.labels)
        self._utilization_of = cache(self._utilization.labels)
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

    def overflowed(self) -> None:
        self._overflows.inc()

    def store_outage(self, reason: str) -> None:
        self._outages.labels(reason).inc()

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
