"""Relaying an answer: pieces go to the client as they come, none is waited for, none is kept."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

from proxy.errors import UpstreamDisconnected
from proxy.exchange import Exchange, Stage
from proxy.headers import Headers, first, to_client, without
from proxy.upstream import Answer
from proxy.watching import FilteredStream, Watch


class Client(Protocol):
    """The client's end of an exchange."""

    def start(self, status: int, reason: bytes, headers: Headers) -> None:
        """Fix the answer's head; it goes out with the first write."""

    async def write(self, data: bytes) -> None:
        """Send the head if it has not gone out yet, and `data` if there is any."""

    async def end(self, data: bytes) -> None:
        """Send the last of the body and mark the answer as whole."""


async def relay(
    answer: Answer,
    watched: Watch,
    client: Client,
    exchange: Exchange,
    announced: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """`announced` is what Tailfold itself has to say in the answer's head."""
    began = perf_counter()
    exchange.status = answer.status
    exchange.upstream_id = _text(first(answer.headers, b"x-request-id"))
    client.start(answer.status, answer.reason, [*_headers(answer, watched), *announced])
    data = answer.read_ready()
    if not answer.complete:
        await client.write(watched.feed(data))
        exchange.spent(Stage.RELAY, began)
        exchange.first_byte = perf_counter()
        data = await _relay_pieces(answer, watched, client)
    last = watched.feed(data) + watched.flush()
    if answer.close_delimited and watched.cut:
        await client.write(last)
        raise UpstreamDisconnected("The upstream ended its stream in the middle.")
    await client.end(last)
    if exchange.first_byte is None:
        exchange.spent(Stage.RELAY, began)
        exchange.first_byte = perf_counter()


async def _relay_pieces(answer: Answer, watched: Watch, client: Client) -> bytes:
    """Relay while there is more to come; the last piece is left to be sent together with the end."""
    while True:
        data = await answer.read()
        if answer.complete:
            return data
        if shown := watched.feed(data):
            await client.write(shown)


def _headers(answer: Answer, watched: Watch) -> Headers:
    headers = to_client(answer.headers)
    if isinstance(watched, FilteredStream):  # decoded, and shorter by an event
        return without(headers, b"content-length", b"content-encoding")
    return headers


def _text(value: bytes | None) -> str | None:
    return value.decode("latin-1")[:200] if value is not None else None
