"""The edge of the process: every request comes in here, and its one log line is written here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import structlog
from aiohttp import web

from proxy.errors import ShuttingDown, TailfoldError
from proxy.exchange import Exchange, Route
from proxy.metrics import OTHER, Metrics
from proxy.web.downstream import Downstream
from proxy.web.entrance import Handler
from proxy.web.expect import answer_expectation
from proxy.web.receive import discard_rest
from proxy.web.refusals import SERVER, error_bytes, error_headers, error_response, reason_of
from proxy.windows.litellm_map import known_names

Proxied = Callable[[web.Request, Downstream, Exchange], Awaitable[None]]

log = structlog.get_logger("tailfold")

CLIENT_LEFT = "client_disconnected"


class Edge:
    def __init__(self, metrics: Metrics, *, stall: float) -> None:
        self._metrics = metrics
        self._stall = stall
        # Bound once: the global logger would be bound anew for every line.
        bound: structlog.typing.FilteringBoundLogger = structlog.get_logger("tailfold").bind()
        self._debug, self._info, self._warn = bound.debug, bound.info, bound.warning
        self._running: set[asyncio.Task[Any] | None] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False  # set once the process has been asked to end

    async def idle(self) -> None:
        """Wait until no request is being handled."""
        await self._idle.wait()

    async def break_off(self) -> None:
        """End what is running: with a 503 where no answer has begun, visibly where one has."""
        for task in self._running:
            if task is not None:
                task.cancel()
        await self.idle()

    def proxied(self, route: Route, handle: Proxied) -> Handler:
        """A handler that answers with the upstream's bytes, or with an error of ours in OpenAI's shape."""

        async def handler(request: web.Request) -> web.StreamResponse:
            exchange = _exchange(request, route)
            answer = Downstream(request, stall=self._stall, draining=lambda: self.draining)
            task = self._begin()
            try:
                answer_expectation(request)
                await handle(request, answer, exchange)
            except TailfoldError as error:
                await self._refuse(answer, error, exchange)
            except asyncio.CancelledError:
                self._cancelled(request, answer, exchange)
                raise
            except ConnectionError:  # noticed while writing, before aiohttp noticed
                self._left(exchange)
                answer.break_off()
            except Exception as defect:  # the process and its other requests go on
                log.error("request failed", id=exchange.id, exc_info=defect)
                await self._refuse(answer, TailfoldError("Tailfold made a mistake."), exchange)
            finally:
                self._end(task, exchange)
            if not request.content.is_eof():
                await discard_rest(request)
            return answer

        return handler

    def own(self, handle: Handler) -> Handler:
        """A handler of one of Tailfold's own pages."""

        async def handler(request: web.Request) -> web.StreamResponse:
            exchange = _exchange(request, Route.OWN)
            task = self._begin()
            try:
                response = await handle(request)
                exchange.status = response.status
            except TailfoldError as error:
                response = error_response(error)
                exchange.status, exchange.error = error.status, error.code
            finally:
                self._end(task, exchange)
            response.headers.setdefault("Server", SERVER)
            if self.draining or not request.content.is_eof():
                response.force_close()
            return response

        return handler

    def _begin(self) -> asyncio.Task[Any] | None:
        task = asyncio.current_task()
        self._running.add(task)
        self._metrics.in_flight.inc()
        self._idle.clear()
        return task

    async def _refuse(self, answer: Downstream, error: TailfoldError, exchange: Exchange) -> None:
        exchange.error = error.code
        if answer.started:
            answer.break_off()
            return
        exchange.status = error.status
        try:
            answer.start(error.status, reason_of(error), error_headers(error))
            await answer.end(error.body())
        except ConnectionError:
            self._left(exchange)

    def _cancelled(self, request: web.Request, answer: Downstream, exchange: Exchange) -> None:
        if request.transport is None:
            self._left(exchange)
            return
        ended = ShuttingDown()
        exchange.error = ended.code
        if answer.started:
            answer.break_off()
        else:
            exchange.status = ended.status
            request.transport.write(error_bytes(ended))

    def _left(self, exchange: Exchange) -> None:
        exchange.error = CLIENT_LEFT
        exchange.status = exchange.status or 499

    def _end(self, task: asyncio.Task[Any] | None, exchange: Exchange) -> None:
        self._running.discard(task)
        self._metrics.in_flight.dec()
        if not self._running:
            self._idle.set()
        self._record(exchange)

    def _record(self, exchange: Exchange) -> None:
        seconds = perf_counter() - exchange.started
        answered = exchange.route is Route.CHAT and 200 <= exchange.status < 300
        # A name that the upstream has not accepted may be anything.
        self._metrics.observe(exchange, _label(exchange.model) if answered else OTHER, seconds)
        if answered and exchange.usage is None and exchange.error is None:
            self._metrics.usage_missing()
        self._log(exchange)("request", **_line(exchange, seconds))

    def _log(self, exchange: Exchange) -> Callable[..., Any]:
        if exchange.error not in (None, CLIENT_LEFT):
            return self._warn
        # Probes and scrapes come every few seconds and say nothing.
        return self._debug if exchange.route is Route.OWN else self._info


def _exchange(request: web.Request, route: Route) -> Exchange:
    return Exchange(request.method, request.raw_path.partition("?")[0][:256], route)


def _label(model: str | None) -> str:
    return model if model is not None and model in known_names() else OTHER


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
    if exchange.size is not None:
        line["conversation"] = exchange.conversation
        line["action"] = ",".join(exchange.actions)
        line["received_tokens"] = exchange.size.received
        line["counted_tokens"] = exchange.size.tokens
        line["room"] = exchange.size.room
    if exchange.warnings:
        line["warning"] = ",".join(exchange.warnings)
    if exchange.usage is not None:
        line["prompt_tokens"] = exchange.usage.prompt
        line["cached_tokens"] = exchange.usage.cached
        line["completion_tokens"] = exchange.usage.completion
    if exchange.error is not None:
        line["error"] = exchange.error
    return line
