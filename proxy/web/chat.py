"""POST /v1/chat/completions."""

from __future__ import annotations

from aiohttp import web

from proxy.exchange import Exchange
from proxy.pipeline import ChatPipeline, Incoming
from proxy.web.downstream import Downstream
from proxy.web.receive import InFlight, Patience, WholeBody
from proxy.web.target import target_of
from proxy.web.wishes import wishes_of


class ChatHandler:
    def __init__(
        self, pipeline: ChatPipeline, in_flight: InFlight, patience: Patience, *, most: int, mode: str
    ) -> None:
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._patience = patience
        self._most = most
        self._mode = mode

    async def __call__(self, request: web.Request, answer: Downstream, exchange: Exchange) -> None:
        wishes = wishes_of(request, self._mode)
        async with WholeBody(request, self._in_flight, self._patience, self._most) as body:
            incoming = Incoming(b"POST", target_of(request), request.raw_headers, body, wishes)
            await self._pipeline.run(incoming, answer, exchange)
