"""The application on the fastest event loop there is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from proxy import logs
from proxy.settings import Settings


def serve_on(settings: Settings, sock: socket.socket, *, on_ready: Callable[[], None]) -> None:
    """Serve until a signal says stop and running answers have had their time."""
    from proxy import app  # brings the whole server along, which no other command should have to wait for

    logs.configure(settings.log.level, settings.log.format)
    _run()(app.serve(settings, sock, on_ready=on_ready))


def _run() -> Callable[..., object]:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return asyncio.run
    return uvloop.run
