"""The way of a chat request: receive, identify, count, decide, assemble, forward, relay, record.

Nothing is folded yet, so what lies between counting and forwarding leaves the client's bytes alone; the
one thing that may be put in is the wish for `usage` in a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

from proxy import messages
from proxy.announcing import announcement
from proxy.decoding import NotDecodable, decoder_for
from proxy.exchange import Exchange, Size, Stage
from proxy.headers import Headers, first, replaced, to_upstream
from proxy.identify import Tenants, credentials_in
from proxy.messages import ChatRequest
from proxy.metrics import Metrics
from proxy.relay import Client, relay
from proxy.sizing import Sized, Sizing
from proxy.upstream import Answer, Outgoing, Upstream
from proxy.watching import Watch, watch
from proxy.windows.asking import Asking
from proxy.windows.overflow import overflow

_REFUSALS = (400, 422)
# The upstream does not know the caller: nothing of the request is kept.
_STRANGERS = (401, 403)
# How much of a refusal is read to learn what was refused.
_MAX_REFUSAL = 64 * 1024


@dataclass(frozen=True, slots=True)
class Incoming:
    """A chat request as it came in; `target` is the path below /v1 with its query, as the client has it."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    mode: str


class ChatPipeline:
    def __init__(
        self,
        upstream: Upstream,
        tenants: Tenants,
        sizing: Sizing,
        asking: Asking | None,
        metrics: Metrics,
        *,
        ask_for_usage: bool,
    ) -> None:
        self._upstream = upstream
        self._tenants = tenants
        self._sizing = sizing
        self._asking = asking  # None where the upstream is not to be asked about itself
        self._metrics = metrics
        self._ask_for_usage = ask_for_usage  # turns false for good once the upstream has refused the wish

    async def run(self, incoming: Incoming, client: Client, exchange: Exchange) -> None:
        began = perf_counter()
        chat = self._receive(incoming, exchange)
        tenant = self._tenants.of(incoming.headers, incoming.target)
        sized = await self._count(tenant, chat, exchange)
        unchanged = self._assemble(incoming)
        asking = self._asking_for_usage(incoming, chat, unchanged)
        exchange.spent(Stage.PREPARE, began)
        answer, watched = await self._forward(unchanged, asking)
        try:
            await relay(answer, watched, client, exchange, announcement(sized))
        finally:
            answer.close()
            self._record(incoming, sized, watched, exchange)

    def _receive(self, incoming: Incoming, exchange: Exchange) -> ChatRequest:
        chat = _read(incoming.body, first(incoming.headers, b"content-encoding"))
        exchange.model, exchange.streams = chat.model, chat.streams
        return chat

    async def _count(self, tenant: bytes, chat: ChatRequest, exchange: Exchange) -> Sized:
        began = perf_counter()
        sized = await self._sizing.size(tenant, chat)
        count = sized.counted.count
        exchange.size = Size(
            count.tokens,
            count.uncertainty,
            count.basis,
            sized.budget.room,
            sized.window.origin,
            perf_counter() - began,
        )
        return sized

    def _assemble(self, incoming: Incoming) -> Outgoing:
        return Outgoing(incoming.method, incoming.target, to_upstream(incoming.headers), incoming.body)

    def _asking_for_usage(
        self, incoming: Incoming, chat: ChatRequest, unchanged: Outgoing
    ) -> Outgoing | None:
        """The same request with the wish for usage, where that is ours to add."""
        if incoming.mode != "compress" or not self._ask_for_usage:
            return None
        body = messages.asking_for_usage(chat)
        if body is None:
            return None
        # An event can only be taken out of a stream that is not compressed.
        headers: Headers = replaced(unchanged.headers, b"accept-encoding", b"identity")
        return replace(unchanged, headers=headers, body=body)

    async def _forward(self, unchanged: Outgoing, asking: Outgoing | None) -> tuple[Answer, Watch]:
        if asking is None:
            return await self._forward_unchanged(unchanged)
        answer = await self._upstream.send(asking)
        if not await _names_stream_options(answer):
            return answer, watch(answer.headers, hide_usage=True)
        answer.close()
        self._metrics.resent("stream_options")
        answer, watched = await self._forward_unchanged(unchanged)
        # Some servers quote the whole request in any refusal: only if it was our wish is it not made again.
        if answer.status not in _REFUSALS:
            self._ask_for_usage = False
        return answer, watched

    async def _forward_unchanged(self, unchanged: Outgoing) -> tuple[Answer, Watch]:
        answer = await self._upstream.send(unchanged)
        return answer, watch(answer.headers, hide_usage=False)

    def _record(self, incoming: Incoming, sized: Sized, watched: Watch, exchange: Exchange) -> None:
        began = perf_counter()
        exchange.usage = watched.usage()
        if 200 <= exchange.status < 300:
            lesson = self._sizing.answered(sized, exchange.usage)
            if exchange.size is not None:
                exchange.size.truncated = lesson.truncated
            if self._asking is not None:
                self._asking.about(sized.model, credentials_in(incoming.headers))
        elif exchange.status not in _STRANGERS:
            self._sizing.answered(sized, None)
        self._learn_from_refusal(sized, watched, exchange)
        exchange.spent(Stage.RECORD, began)

    def _learn_from_refusal(self, sized: Sized, watched: Watch, exchange: Exchange) -> None:
        said = watched.said()
        if exchange.status < 300 and not (isinstance(said, dict) and said.get("error")):
            return
        # In a stream, and from some gateways, a refusal comes with a 200.
        status = exchange.status if exchange.status >= 300 else None
        if (too_long := overflow(status, said)) is not None:
            self._sizing.refused(sized, too_long)
            self._metrics.overflowed()


def _read(body: bytes, encoding: bytes | None) -> ChatRequest:
    if encoding is None:
        return messages.read(body, compressed=False)
    try:
        return messages.read_decompressed(body, decoder_for(encoding).feed(body))
    except NotDecodable:
        return messages.read(body, compressed=True)


async def _names_stream_options(answer: Answer) -> bool:
    """Does the upstream refuse the request with words about our wish? The answer can be read again."""
    if answer.status not in _REFUSALS:
        return False
    refusal = b""
    try:
        while not answer.complete and len(refusal) < _MAX_REFUSAL:
            refusal += await answer.read()
        refusal += answer.read_ready()
    except BaseException:
        answer.close()
        raise
    answer.put_back(refusal)
    try:
        return b"stream_options" in decoder_for(first(answer.headers, b"content-encoding")).feed(refusal)
    except NotDecodable:
        return False
