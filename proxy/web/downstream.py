"""Answering a client with the upstream's own bytes.

aiohttp's responses decode headers, add some of their own and refuse others. This one writes the head as it
came, and frames the body itself.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from proxy.errors import UpstreamProtocolError
from proxy.headers import Headers, first, head_bytes

_BODILESS = frozenset({204, 304})


class Downstream(web.StreamResponse):
    """The client's end of an exchange (see `proxy.relay.Client`)."""

    def __init__(self, request: web.BaseRequest, *, stall: float, draining: Callable[[], bool]) -> None:
        super().__init__()
        self._request = request
        self._stall = stall  # a client that takes nothing for so long has gone
        self._head: bytes | None = None
        self._chunked = False
        self._bodiless = False
        self._until_close = False
        self.started = False  # has a byte gone out?
        self._draining = draining
        self._keep_alive = request.keep_alive

    def start(self, status: int, reason: bytes, headers: Headers) -> None:
        self.set_status(status, reason.decode("latin-1"))
        framing = self._framing(status, headers)
        line = b"HTTP/1.1 %d %b" % (status, reason)
        try:
            self._head = head_bytes(line, [*headers, *framing])
        except ValueError as problem:
            raise UpstreamProtocolError(f"The upstream's answer cannot be relayed: {problem}.") from problem

    def _framing(self, status: int, headers: Headers) -> Headers:
        framing: Headers = []
        modern = self._request.version >= HttpVersion11
        self._bodiless = self._request.method == "HEAD" or status in _BODILESS
        # Set anew: an error of ours may take the place of an answer whose head has not gone out.
        unsized = not self._bodiless and first(headers, b"content-length") is None
        self._chunked, self._until_close = unsized and modern, unsized and not modern
        if self._chunked:
            framing.append((b"Transfer-Encoding", b"chunked"))
        if self._until_close or self._draining() or not self._request.content.is_eof():
            self._keep_alive = False  # the last one: asked for by HTTP/1.0, by us, or by a body half sent
        if not self._keep_alive:
            framing.append((b"Connection", b"close"))
        elif not modern:
            framing.append((b"Connection", b"keep-alive"))
        return framing

    async def write(self, data: bytes) -> None:  # type: ignore[override]
        if data and not self._bodiless:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        elif self._head is not None:
            await self._send(b"")

    async def end(self, data: bytes) -> None:
        if self._bodiless:
            data = b""
        elif self._chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        if self._head is not None:
            data, self._head = self._head + data, None
            self.started = True
        if not data:
            return
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("The client has left.")
        transport.write(data)
        if self._request.protocol.writing_paused:
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._stall):
                await self._request.writer.drain()
        except TimeoutError as stalled:
            self.break_off()
            raise ConnectionResetError("The client stopped reading.") from stalled

    def break_off(self) -> None:
        """End the answer so that nobody can take it for whole."""
        self._keep_alive = False
        transport = self._request.transport
        if transport is None:
            return
        if self._until_close:
            # The end of the connection is the end of the body here, so it has to be a reset.
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        elif self.started and self._request.protocol.writing_paused:
            transport.abort()
        else:
            transport.close()

    # Called by aiohttp when the handler has returned: all is said already.

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        pass
