"""Receiving request bodies: bounded in size, in time and in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import StreamReader, web

from proxy.errors import BadRequest, BodyTooLarge, Overloaded, RequestTooSlow, TailfoldError
from proxy.metrics import Metrics
from proxy.upstream import Body

# Most clients read the answer only when they have sent all, so this is what a refused upload may weigh.
_DISCARD_SECONDS = 10.0
_DISCARD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """A body may lag `grace` seconds behind `rate` bytes per second, however long it is."""

    grace: float
    rate: float


class InFlight:
    """The bytes of all request bodies that are held at the same time."""

    def __init__(self, most: int, metrics: Metrics) -> None:
        self._most = most
        self._held = 0
        self._gauge = metrics.in_flight_bytes

    def hold(self, size: int) -> None:
        if self._held + size > self._most:
            raise Overloaded("Tailfold holds as many request bytes as it may; try again shortly.")
        self._held += size
        self._gauge.inc(size)

    def release(self, size: int) -> None:
        self._held -= size
        self._gauge.dec(size)


class WholeBody:
    """A body that is needed whole. `async with` holds its bytes; they count until the block ends."""

    def __init__(self, request: web.Request, in_flight: InFlight, patience: Patience, most: int) -> None:
        self._request = request
        self._in_flight = in_flight
        self._patience = patience
        self._most = most
        self._held = 0

    async def __aenter__(self) -> bytes:
        try:
            return await self._read()
        except BaseException:
            self._in_flight.release(self._held)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._in_flight.release(self._held)

    async def _read(self) -> bytes:
        refuse_foreign_framing(self._request)
        # What is announced is only compared: held is what has arrived, or a few words would fill the place.
        self._refuse_over(self._request.content_length or 0)
        content = self._request.content
        if content.is_eof():  # it came with its head: the usual case
            body = content.read_nowait()
            self._hold(len(body))
            return body
        return await self._arrived()

    async def _arrived(self) -> bytes:
        arrival = _Arrival(self._request.content, self._patience)
        received: list[bytes] = []
        size = 0
        try:
            while piece := await arrival.next_piece():
                received.append(piece)
                size += len(piece)
                self._hold(size)
        finally:
            arrival.end()
        return b"".join(received)

    def _hold(self, size: int) -> None:
        """Let `size` bytes count in all."""
        self._refuse_over(size)
        self._in_flight.hold(size - self._held)
        self._held = size

    def _refuse_over(self, size: int) -> None:
        if size > self._most:
            raise BodyTooLarge(f"The request body is larger than {self._most} bytes (limits.chat_body).")


async def discard_rest(request: web.Request) -> None:
    """Read some of a body that nobody wants: closing at once could cost the client its answer."""
    discarded = 0
    await asyncio.sleep(0)  # an upload that was just cancelled still holds the body until the next turn
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while discarded < _DISCARD_BYTES and (piece := await request.content.readany()):
                discarded += len(piece)
    except (TimeoutError, TailfoldError, ConnectionError, web.RequestPayloadError):
        pass  # enough: the connection is closed now


class _Arrival:
    """A body arriving: only the time spent waiting for the client counts against the client.

    One timer serves the whole body and is looked at again only when it fires.
    """

    def __init__(self, content: StreamReader, patience: Patience) -> None:
        self._loop = asyncio.get_running_loop()
        self._content = content
        self._patience = patience
        self._received = 0
        self._waited = 0.0
        self._asked: float | None = None  # since when the next piece is awaited
        self._timer = self._loop.call_later(patience.grace, self._check)

    async def next_piece(self) -> bytes:
        self._asked = self._loop.time()
        try:
            piece = await self._content.readany()
        except web.RequestPayloadError as broken:
            raise BadRequest("The request body is not valid HTTP.") from broken
        self._waited += self._loop.time() - self._asked
        self._asked = None
        self._received += len(piece)
        return piece

    def _check(self) -> None:
        left = self._patience.grace + self._received / self._patience.rate - self._waited
        if self._asked is not None:
            left -= self._loop.time() - self._asked
        if self._asked is None or left > 0:
            self._timer = self._loop.call_later(max(left, self._patience.grace / 10), self._check)
        else:
            self._content.set_exception(RequestTooSlow("The request body did not arrive in time."))

    def end(self) -> None:
        self._timer.cancel()


async def pieces(request: web.Request, patience: Patience) -> AsyncIterator[bytes]:
    """A body as it arrives; raises RequestTooSlow for one that is only pretended to arrive."""
    arrival = _Arrival(request.content, patience)
    try:
        while piece := await arrival.next_piece():
            yield piece
    finally:
        arrival.end()


def streamed_body(request: web.Request, patience: Patience) -> Body | bytes | None:
    """A body that is passed on as it arrives; None where the request has none."""
    refuse_foreign_framing(request)
    length = request.content_length
    if length is None and "Transfer-Encoding" not in request.headers:
        return None
    if request.content.is_eof():
        return request.content.read_nowait()
    return Body(pieces(request, patience), length)


def refuse_foreign_framing(request: web.Request) -> None:
    """We undo `chunked` and could not label anything else that a client has put around the body."""
    coding = request.headers.get("Transfer-Encoding")
    if coding is not None and coding.strip().lower() != "chunked":
        raise BadRequest("Transfer-Encoding other than chunked is not supported.")
