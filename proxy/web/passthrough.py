"""Every other path and method under /v1/: streamed through both ways, nothing read, nothing kept."""

from __future__ import annotations

from aiohttp import web

from proxy.errors import NotSupported
from proxy.exchange import Exchange
from proxy.headers import to_upstream
from proxy.relay import relay
from proxy.upstream import Outgoing, Upstream
from proxy.watching import Unwatched
from proxy.web.downstream import Downstream
from proxy.web.receive import Patience, streamed_body
from proxy.web.target import target_of


class PassthroughHandler:
    def __init__(self, upstream: Upstream, patience: Patience) -> None:
        self._upstream = upstream
        self._patience = patience

    async def __call__(self, request: web.Request, answer: Downstream, exchange: Exchange) -> None:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            raise NotSupported("WebSocket connections are not proxied; connect to the upstream directly.")
        outgoing = Outgoing(
            request.method.encode(),
            target_of(request),
            to_upstream(request.raw_headers),
            streamed_body(request, self._patience),
        )
        received = await self._upstream.send(outgoing)
        try:
            await relay(received, Unwatched(), answer, exchange)
        finally:
            received.close()
