"""The edge of the process: every request comes in here, and its one log line is written here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import structlog
from aiohttp import web

from proxy.errors import TailfoldError
from proxy.exchange import Exchange, Route
from proxy.known_models import label_for
from proxy.metrics import OTHER, Metrics
from proxy.web.downstream import Downstream
from proxy.web.refusals import error_response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Proxied = Callable[[web.Request, Downstream, Exchange], Awaitable[None]]

log = structlog.get_logger("tailfold")

CLIENT_LEFT = "client_disconnected"


class Edge:
    def __init__(self, metrics: Metrics, *, stall: float) -> None:
        self._metrics = metrics
        self._stall = stall
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False  # set once the process has been asked to end

    async def idle(self) -> None:
        """Wait until no request is being handled."""
        await self._idle.wait()

    def proxied(self, route: Route, handle: Proxied) -> Handler:
        """A handler that answers with the upstream's bytes, or with an error of ours in OpenAI's shape."""

        async def handler(request: web.Request) -> web.StreamResponse:
            exchange = _exchange(request, route)
            answer = Downstream(request, stall=self._stall, draining=lambda: self.draining)
            self._begin()
            try:
                await handle(request, answer, exchange)
                return answer
            except TailfoldError as error:
                return self._refuse(answer, error, exchange)
            except asyncio.CancelledError:
                self._left(exchange)
                raise
            except ConnectionError:  # noticed while writing, before aiohttp noticed
                self._left(exchange)
                answer.break_off()
                return answer
            except Exception as defect:  # the process and its other requests go on
                log.error("request failed", id=exchange.id, exc_info=defect)
                return self._refuse(answer, TailfoldError("Tailfold made a mistake."), exchange)
            finally:
                self._end(exchange)

        return handler

    def own(self, handle: Handler) -> Handler:
        """A handler of one of Tailfold's own pages."""

        async def handler(request: web.Request) -> web.StreamResponse:
            exchange = _exchange(request, Route.OWN)
            self._begin()
            try:
                response = await handle(request)
                exchange.status = response.status
                return response
            except TailfoldError as error:
                exchange.status, exchange.error = error.status, error.code
                return error_response(error)
            finally:
                self._end(exchange)

        return handler

    def _begin(self) -> None:
        self._running += 1
        self._metrics.in_flight.inc()
        self._idle.clear()

    def _refuse(self, answer: Downstream, error: TailfoldError, exchange: Exchange) -> web.StreamResponse:
        exchange.error = error.code
        if answer.started:
            answer.break_off()
            return answer
        exchange.status = error.status
        return error_response(error)

    def _left(self, exchange: Exchange) -> None:
        exchange.error = CLIENT_LEFT
        exchange.status = exchange.status or 499

    def _end(self, exchange: Exchange) -> None:
        self._running -= 1
        self._metrics.in_flight.dec()
        if not self._running:
            self._idle.set()
        self._record(exchange)

    def _record(self, exchange: Exchange) -> None:
        seconds = perf_counter() - exchange.started
        answered = exchange.route is Route.CHAT and 200 <= exchange.status < 300
        # A name that the upstream has not accepted may be anything.
        self._metrics.observe(exchange, label_for(exchange.model) if answered else OTHER, seconds)
        if answered and exchange.usage is None and exchange.error is None:
            self._metrics.usage_missing()
        _level(exchange)("request", **_line(exchange, seconds))


def _exchange(request: web.Request, route: Route) -> Exchange:
    return Exchange(request.method, request.raw_path.partition("?")[0][:256], route)


def _level(exchange: Exchange) -> Callable[..., None]:
    if exchange.error not in (None, CLIENT_LEFT):
        return log.warning  # type: ignore[no-any-return]  # structlog's loggers are untyped
    # Probes and scrapes come every few seconds and say nothing.
    return log.debug if exchange.route is Route.OWN else log.info  # type: ignore[no-any-return]


def _line(exchange: Exchange, seconds: float) -> dict[str, object]:
    line: dict[str, object] = {
        "id": exchange.id,
        "route": exchange.route.value,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "ms": round(seconds * 1000, 2),
    }
    if exchange.first_byte is not None:
        line["first_byte_ms"] = round((exchange.first_byte - exchange.started) * 1000, 2)
    if exchange.model is not None:
        line["model"] = exchange.model[:128]
    if exchange.streams:
        line["stream"] = True
    if exchange.upstream_id is not None:
        line["upstream_id"] = exchange.upstream_id
    if exchange.usage is not None:
        line["prompt_tokens"] = exchange.usage.prompt
        line["cached_tokens"] = exchange.usage.cached
        line["completion_tokens"] = exchange.usage.completion
    if exchange.error is not None:
        line["error"] = exchange.error
    return line
