"""The listening side: aiohttp's server with the limits that it does not have itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from proxy.errors import BadRequest, HeadTooLarge, Overloaded, RequestTooSlow, TailfoldError
from proxy.metrics import Metrics
from proxy.web.entrance import Entrance
from proxy.web.refusals import error_bytes, error_response

log = structlog.get_logger("tailfold")


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
            lingering_time=0,  # `discard_rest` does it, with a bound on the bytes
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
            late = RequestTooSlow("The request's head did not arrive in time.")
            note_refusal(late, self._metrics)
            self.transport.write(error_bytes(late))
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
        error = self._error_for(status, exc)
        note_refusal(error, self._metrics)
        if status >= 500:
            log.error("request failed", exc_info=exc)
        response = error_response(error)
        response.force_close()
        return response

    def _error_for(self, status: int, exc: BaseException | None) -> TailfoldError:
        if status >= 500:
            return TailfoldError("Tailfold made a mistake.")
        if isinstance(exc, LineTooLong) or "Too many" in str(exc):
            return HeadTooLarge(
                f"The request's head is too large (limits.head is {self._limits.head_bytes} bytes)."
            )
        return BadRequest("The request is not valid HTTP.")


def note_refusal(error: TailfoldError, metrics: Metrics) -> None:
    """For what never became a request, and so has no line and no count of its own."""
    metrics.refused(error.code)
    log.info("connection refused", status=error.status, error=error.code)


class TurnedAway(asyncio.Protocol):
    """A connection above the limit: told so, and closed."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        leaving = cast(asyncio.Transport, transport)
        full = Overloaded("Too many connections (limits.connections); try again shortly.")
        note_refusal(full, self._metrics)
        leaving.write(error_bytes(full))
        leaving.close()


def _noticing_heads(make_request: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """A request is made when its head has arrived: the connection's timer can rest."""

    def request_factory(message: Any, payload: Any, connection: Any, *more: Any) -> web.BaseRequest:
        connection.head_arrived()
        return make_request(message, payload, connection, *more)

    return request_factory


class Listener:
    """Accepts clients for an application until told to stop."""

    def __init__(self, entrance: Entrance, limits: ServerLimits, metrics: Metrics) -> None:
        # A client that leaves cancels its handler, and with it the upstream's work.
        self._runner = web.AppRunner(entrance.pages, handler_cancellation=True)
        self._entrance = entrance
        self._limits = limits
        self._metrics = metrics
        self._listening: asyncio.Server | None = None

    async def start(self, sock: socket.socket) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_factory = _noticing_heads(server.request_factory)
        server.request_handler = self._entrance.before(server.request_handler)
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: self._accept(server), sock=sock, backlog=_BACKLOG)

    def _accept(self, server: web.Server) -> asyncio.Protocol:
        if len(server.connections) >= self._limits.connections:
            return TurnedAway(self._metrics)
        return ClientConnection(server, asyncio.get_running_loop(), self._limits, self._metrics)

    def stop_accepting(self) -> None:
        """Close the door. Connections that are open go on: each is told with its next answer to leave."""
        if self._listening is not None:
            self._listening.close()

    async def close(self) -> None:
        """End what is still running."""
        if self._runner.server is not None:
            await self._runner.server.shutdown(0.1)
        await self._runner.cleanup()
