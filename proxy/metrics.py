"""What Prometheus is told. Label values are few and known beforehand: nothing a client sends becomes one."""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from proxy.exchange import Exchange, Route, Stage
from proxy.usage import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OVERHEAD = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
OTHER = "other"
TOKEN_KINDS = ("uncached", "cache_read", "output")


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tailfold_requests_total",
            "Requests by route, model and the status that the client saw.",
            ("route", "model", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "tailfold_request_seconds",
            "From a request's head to the last byte of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._first_byte = Histogram(
            "tailfold_first_byte_seconds",
            "From a request's head to the first byte of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._overhead = Histogram(
            "tailfold_overhead_seconds",
            "Tailfold's own time in a request, by stage; waiting for others is not in it.",
            ("stage",),
            buckets=_OVERHEAD,
            registry=registry,
        )
        self._tokens = Counter(
            "tailfold_upstream_tokens_total",
            "Tokens that the upstream reported: uncached and cache_read make up the input.",
            ("model", "kind"),
            registry=registry,
        )
        self._unreported = Counter(
            "tailfold_usage_missing_total",
            "Successful chat answers that did not say what they cost.",
            registry=registry,
        )
        self._errors = Counter(
            "tailfold_errors_total",
            "Errors of Tailfold's own, by code; the upstream's errors are in tailfold_requests_total.",
            ("code",),
            registry=registry,
        )
        self._resends = Counter(
            "tailfold_upstream_resends_total",
            "Requests sent a second time, by reason: dead_connection, stream_options.",
            ("reason",),
            registry=registry,
        )
        self.in_flight = Gauge(
            "tailfold_in_flight_requests",
            "Requests being handled now.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.in_flight_bytes = Gauge(
            "tailfold_in_flight_bytes",
            "Bytes of request bodies held now.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.connections = Gauge(
            "tailfold_client_connections",
            "Client connections open now.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        # Looking up a labelled child costs more than counting, so the ones in use are kept at hand.
        self._seconds_of = {route: self._seconds.labels(route.value) for route in Route}
        self._first_byte_of = {route: self._first_byte.labels(route.value) for route in Route}
        self._overhead_of = {stage: self._overhead.labels(stage.value) for stage in Stage}
        self._requests_of = cache(
            lambda route, model, status: self._requests.labels(route, model, str(status))
        )
        self._tokens_of = cache(lambda model: tuple(self._tokens.labels(model, kind) for kind in TOKEN_KINDS))

    def observe(self, exchange: Exchange, model: str, seconds: float) -> None:
        """Count one finished exchange; `model` is a known name or `other`."""
        route = exchange.route
        self._requests_of(route, model, exchange.status).inc()
        self._seconds_of[route].observe(seconds)
        if exchange.first_byte is not None:
            self._first_byte_of[route].observe(exchange.first_byte - exchange.started)
        for stage, spent in exchange.stages.items():
            self._overhead_of[stage].observe(spent)
        if exchange.error is not None:
            self._errors.labels(exchange.error).inc()
        if exchange.usage is not None:
            self._count_tokens(model, exchange.usage)

    def _count_tokens(self, model: str, usage: Usage) -> None:
        uncached, cache_read, output = self._tokens_of(model)
        uncached.inc(usage.prompt - usage.cached)
        cache_read.inc(usage.cached)
        output.inc(usage.completion)

    def usage_missing(self) -> None:
        self._unreported.inc()

    def resent(self, reason: str) -> None:
        self._resends.labels(reason).inc()

    def exposition(self) -> bytes:
        """All metrics as text; with several workers, those of all of them."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
