"""A running proxy: from the socket it listens on to its drain."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable

import structlog

from proxy.counting.tokenizer import Encodings
from proxy.exchange import Route
from proxy.metrics import Metrics
from proxy.pipeline import ChatPipeline
from proxy.rooms import Rooms
from proxy.settings import Settings
from proxy.tasks import Tasks
from proxy.web.chat import ChatHandler
from proxy.web.edge import Edge
from proxy.web.entrance import Entrance
from proxy.web.guard import Guard
from proxy.web.own import OwnPages
from proxy.web.passthrough import PassthroughHandler
from proxy.web.receive import InFlight, Patience
from proxy.web.server import Listener, ServerLimits

log = structlog.get_logger("tailfold")


class Tailfold:
    """A running proxy: `start`, then `drain`."""

    def __init__(self, settings: Settings, encodings: Encodings | None = None) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.edge = Edge(self.metrics, stall=settings.timeouts.idle)
        self._patience: asyncio.Timeout | None = None  # of a drain
        self._hurried = False
        self.rooms = Rooms(settings, self.metrics, Tasks(), encodings or Encodings())
        self._listener: Listener | None = None

    async def start(self, sock: socket.socket) -> None:
        entrance = self._entrance(await self.rooms.pipeline())
        self._listener = Listener(entrance, _server_limits(self._settings), self.metrics)
        await self._listener.start(sock)
        self.rooms.begin_reading()

    async def drain(self) -> None:
        """Take no more requests, let the running ones end within `timeouts.drain`, then break them off."""
        self.edge.draining = True
        if self._listener is not None:
            self._listener.stop_accepting()
        try:
            limit = 0 if self._hurried else self._settings.timeouts.drain
            async with asyncio.timeout(limit) as self._patience:
                await self.edge.idle()
                await self.rooms.folded()
        except TimeoutError:
            log.warning("requests or folds broken off at the end of the drain time")
            await self.edge.break_off()
        finally:
            self._patience = None
        if self._listener is not None:
            await self._listener.close()
        await self.rooms.close()

    def hurry(self) -> None:
        """End a drain now, or as soon as it begins: somebody has asked for the second time."""
        self._hurried = True
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())

    def _entrance(self, pipeline: ChatPipeline) -> Entrance:
        settings, edge = self._settings, self.edge
        passthrough = PassthroughHandler(self.rooms.upstream, _patience(settings))
        pages = OwnPages(
            self.metrics,
            edge,
            _guard(settings),
            open_metrics=settings.metrics.open,
            store_trouble=lambda: self.rooms.store_trouble,
        )
        return Entrance(
            edge.proxied(Route.CHAT, self._chat_handler(pipeline)),
            edge.proxied(Route.PASSTHROUGH, passthrough),
            edge.own(pages.not_found),
            pages.application(),
        )

    def _chat_handler(self, pipeline: ChatPipeline) -> ChatHandler:
        settings = self._settings
        return ChatHandler(
            pipeline,
            InFlight(settings.limits.in_flight, self.metrics),
            _patience(settings),
            most=settings.limits.chat_body,
            mode=settings.mode if settings.compression.enabled else "off",
        )


async def serve(settings: Settings, sock: socket.socket, *, on_ready: Callable[[], None]) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT; returns when all has ended."""
    tailfold = Tailfold(settings)
    asked_to_end = asyncio.Event()

    def end() -> None:
        if asked_to_end.is_set():
            tailfold.hurry()
        asked_to_end.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    await tailfold.start(sock)
    _settle_memory()
    on_ready()
    await asked_to_end.wait()
    log.info("draining", seconds=settings.timeouts.drain)
    await tailfold.drain()


def _settle_memory() -> None:
    """What is there after the start stays: the garbage collector need not look at it again, nor so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _server_limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        connections=settings.limits.connections,
        head_seconds=settings.timeouts.head,
        head_bytes=settings.limits.head,
        keepalive=settings.timeouts.keepalive,
    )


def _patience(settings: Settings) -> Patience:
    return Patience(settings.timeouts.body, settings.limits.body_rate)


def _guard(settings: Settings) -> Guard:
    token = settings.admin.token.get_secret_value() if settings.admin.token else None
    return Guard(token, [settings.host, *settings.admin.hosts])
