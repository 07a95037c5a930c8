"""The listening side: aiohttp's server with the limits that it does not have itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web

from proxy.errors import BadRequest, Overloaded, RequestTooSlow, TailfoldError
from proxy.metrics import Metrics
from proxy.web.refusals import error_bytes, error_response

log = structlog.get_logger("tailfold")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Larger reads mean fewer wake-ups for large bodies; the kernel's own buffers are of this order.
_READ_BUFFER = 256 * 1024
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    connections: int
    head_seconds: float
    head_bytes: int
    keepalive: float


class ClientConnection(web.RequestHandler):
    """One client's connection: its first head must arrive in time, and its errors have OpenAI's shape.

    The heads that follow are bounded by aiohttp's keep-alive timer, which runs from an answer to the next.
    """

    __slots__ = ("_head_timer", "_limits", "_metrics")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, limits: ServerLimits, metrics: Metrics
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.keepalive,
            access_log=None,  # type: ignore[arg-type]  # None is how aiohttp is told to keep none
            max_line_size=limits.head_bytes,
            max_field_size=limits.head_bytes,
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
        )
        self._limits = limits
        self._metrics = metrics
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._metrics.connections.inc()
        self._head_timer = self._loop.call_later(self._limits.head_seconds, self._head_is_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._metrics.connections.dec()
        self.head_arrived()
        super().connection_lost(exc)

    def head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport is not None:
            self.transport.write(error_bytes(RequestTooSlow("The request's head did not arrive in time.")))
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp says of a request that it cannot parse, in OpenAI's shape."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        if status < 500:
            log.info("bad request", failure=type(exc).__name__)
            response = error_response(BadRequest("The request is not valid HTTP."))
        else:
            log.error("request failed", exc_info=exc)
            response = error_response(TailfoldError("Tailfold made a mistake."))
        response.force_close()
        return response


class TurnedAway(asyncio.Protocol):
    """A connection above the limit: told so, and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        leaving = cast(asyncio.Transport, transport)
        leaving.write(
            error_bytes(Overloaded("Too many connections (limits.connections); try again shortly."))
        )
        leaving.close()


@dataclass(frozen=True, slots=True)
class Shortcut:
    """The way that nearly every request takes, found without asking aiohttp's router."""

    method: str
    path: str
    handler: Handler

    def before(self, router: Callable[[Any], Awaitable[web.StreamResponse]]) -> Callable[[Any], Any]:
        def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
            if (
                request.raw_path == self.path
                and request.method == self.method
                and "Expect" not in request.headers
            ):
                return self.handler(request)
            return router(request)

        return handle


def _noticing_heads(make_request: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """A request is made when its head has arrived: the connection's timer can rest."""

    def request_factory(message: Any, payload: Any, connection: Any, *more: Any) -> web.BaseRequest:
        connection.head_arrived()
        return make_request(message, payload, connection, *more)

    return request_factory


class Listener:
    """Accepts clients for an application until told to stop."""

    def __init__(
        self, app: web.Application, shortcut: Shortcut, limits: ServerLimits, metrics: Metrics
    ) -> None:
        # A client that leaves cancels its handler, and with it the upstream's work.
        self._runner = web.AppRunner(app, handler_cancellation=True)
        self._shortcut = shortcut
        self._limits = limits
        self._metrics = metrics
        self._listening: asyncio.Server | None = None

    async def start(self, sock: socket.socket) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_factory = _noticing_heads(server.request_factory)
        server.request_handler = self._shortcut.before(server.request_handler)
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: self._accept(server), sock=sock, backlog=_BACKLOG)

    def _accept(self, server: web.Server) -> asyncio.Protocol:
        if len(server.connections) >= self._limits.connections:
            return TurnedAway()
        return ClientConnection(server, asyncio.get_running_loop(), self._limits, self._metrics)

    def stop_accepting(self) -> None:
        """Close the door and the connections nobody uses; running requests go on."""
        if self._listening is not None:
            self._listening.close()
        if self._runner.server is not None:
            self._runner.server.pre_shutdown()

    async def close(self) -> None:
        """End what is still running."""
        if self._runner.server is not None:
            await self._runner.server.shutdown(0.1)
        await self._runner.cleanup()
