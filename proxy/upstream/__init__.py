"""The upstream: where every request goes. Upstreams come from configuration, never from a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from proxy.decoding import decoder_for
from proxy.errors import BadRequest, UpstreamDisconnected
from proxy.headers import Headers, first, head_bytes
from proxy.metrics import Metrics
from proxy.tasks import Tasks
from proxy.upstream.connection import Connection
from proxy.upstream.pool import Origin, Pool, Timeouts
from proxy.upstream.wire import Head

__all__ = ["Answer", "Body", "Head", "Outgoing", "Timeouts", "TooLarge", "Upstream", "root_of", "whole_body"]


@dataclass(frozen=True, slots=True)
class Body:
    """A request body that is still arriving: its pieces, and its length where the client declared one."""

    pieces: AsyncIterator[bytes]
    length: int | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    method: bytes
    target: bytes  # path and query below the upstream's base, as the client spelled them
    headers: Headers
    body: bytes | Body | None


class Answer:
    """An answer whose head is there and whose body is arriving. Leave it with `close()`, whole or not."""

    def __init__(
        self, head: Head, connection: Connection, pool: Pool, upload: asyncio.Task[None] | None
    ) -> None:
        self.status = head.status
        self.reason = head.reason
        self.headers = head.headers
        self._connection = connection
        self._pool = pool
        self._upload = upload
        self._closed = False

    async def read(self) -> bytes:
        return await self._connection.read()

    def read_ready(self) -> bytes:
        return self._connection.read_ready()

    def put_back(self, data: bytes) -> None:
        """Let the next read begin with `data` again."""
        self._connection.put_back(data)

    @property
    def complete(self) -> bool:
        """Has the last byte arrived (though perhaps not been read)?"""
        return self._connection.complete

    @property
    def close_delimited(self) -> bool:
        """Only the end of the connection ends this body: being cut looks the same as being whole."""
        return self._connection.close_delimited

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._upload is not None and not self._upload.done():
            self._upload.cancel()  # answered before the body was sent: the connection is out of step
            self._connection.abort()
        else:
            self._pool.give_back(self._connection)


class TooLarge(Exception):
    """An answer has more bytes than anybody wants to hold."""


async def whole_body(answer: Answer, most: int) -> bytes:
    """For requests of our own, whose answers are read and not relayed: all of it, decoded."""
    decoder = decoder_for(first(answer.headers, b"content-encoding"))
    body = bytearray()
    while piece := await answer.read():
        body += decoder.feed(piece)
        if len(body) > most:
            raise TooLarge
    return bytes(body)


def root_of(base_url: str) -> str:
    """The server behind an upstream: what it says of itself lies beside /v1 as often as below it."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


class Upstream:
    def __init__(
        self, base_url: str, origin: Origin, timeouts: Timeouts, metrics: Metrics, tasks: Tasks
    ) -> None:
        parts = urlsplit(base_url)
        self._base_path = parts.path.rstrip("/").encode()
        self._host = (b"Host", parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii"))
        self._pool = Pool(origin, timeouts)
        self._metrics = metrics
        self._tasks = tasks

    async def send(self, outgoing: Outgoing) -> Answer:
        """Send once; once more only if a pooled connection turned out dead before it answered a byte."""
        resting = self._pool.take_resting()
        if resting is None:
            return await self._exchange(outgoing, await self._pool.open())
        try:
            return await self._exchange(outgoing, resting)
        except UpstreamDisconnected:
            if resting.answered or isinstance(outgoing.body, Body):
                raise
            self._metrics.resent("dead_connection")
            return await self._exchange(outgoing, await self._pool.open())

    def close(self) -> None:
        self._pool.close()

    async def _exchange(self, outgoing: Outgoing, connection: Connection) -> Answer:
        upload: asyncio.Task[None] | None = None
        try:
            connection.begin(bodiless_answer=outgoing.method == b"HEAD")
            upload = self._write(outgoing, connection)
            return Answer(await connection.head(), connection, self._pool, upload)
        except BaseException:
            if upload is not None:
                upload.cancel()
            connection.abort()
            raise

    def _write(self, outgoing: Outgoing, connection: Connection) -> asyncio.Task[None] | None:
        head = self._head(outgoing)
        body = outgoing.body
        if isinstance(body, Body):
            connection.write(head)
            return self._tasks.start(_upload(body, connection), name="upload")
        connection.write(head, body or b"")
        return None

    def _head(self, outgoing: Outgoing) -> bytes:
        framing: Headers = []
        match outgoing.body:
            case bytes() as whole:
                framing = [(b"Content-Length", b"%d" % len(whole))]
            case Body(length=None):
                framing = [(b"Transfer-Encoding", b"chunked")]
            case Body(length=int(length)):
                framing = [(b"Content-Length", b"%d" % length)]
        start = b"%b %b%b HTTP/1.1" % (outgoing.method, self._base_path, outgoing.target)
        try:
            return head_bytes(start, [self._host, *outgoing.headers, *framing])
        except ValueError as problem:
            raise BadRequest(f"The request cannot be forwarded: {problem}.") from problem


async def _upload(body: Body, connection: Connection) -> None:
    """Send a body while it arrives. If the client breaks off, so does the upstream's request: visibly."""
    try:
        async for piece in body.pieces:
            if body.length is None:
                piece = b"%x\r\n%b\r\n" % (len(piece), piece)
            connection.write(piece)
            await connection.drained()
        if body.length is None:
            connection.write(b"0\r\n\r\n")
    except Exception as broken:  # noqa: BLE001 - whatever it was, the waiting request is told by fail()
        connection.fail(broken)
