"""The cheapest upstream that speaks enough HTTP: fixed bytes, no parsing beyond the body's length.

python -m bench.upstream PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from bench.answers import ANSWER, PLAIN_STREAM, USAGE_STREAM, EventStream, billed
from bench.conversation import PAUSE_HEADER

_FIRST_BUFFER = 16 * 1024
_LARGEST_REQUEST = 8 * 1024 * 1024
# Clients write the switches after the messages, so looking at the end spares a search through 400 KB.
_TAIL = 256
# A model thinks between two tokens. Without this rest the first event would share its way with the next ones,
# and its time would tell which process the kernel let run first.
_PAUSE_AFTER_FIRST = 0.002


class FixedAnswers(asyncio.BufferedProtocol):
    """One connection. Requests are read in place, so a large body costs no copy here."""

    def __init__(self) -> None:
        self._buffer = bytearray(_FIRST_BUFFER)
        self._filled = 0
        self._head = b""
        self._end = 0  # of the current request, once its head is known
        self._body_size = 0
        self._running_stream: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, _failure: Exception | None) -> None:
        if self._running_stream:
            self._running_stream.cancel()

    def get_buffer(self, _size: int) -> memoryview:
        if self._filled == len(self._buffer):
            self._make_room(2 * self._filled)
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        if not self._end:
            self._read_head()
        if self._end and self._filled >= self._end:
            self._answer()

    def _make_room(self, size: int) -> None:
        if size > _LARGEST_REQUEST:
            raise ValueError("a request larger than any the benchmark sends")
        self._buffer = self._buffer[: self._filled].ljust(size, b"\0")

    def _read_head(self) -> None:
        head_end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if head_end < 0:
            return
        self._head = bytes(self._buffer[:head_end]).lower()
        if b"\r\ntransfer-encoding:" in self._head:
            raise ValueError("the benchmark's upstream reads only bodies with a Content-Length")
        self._body_size = int(_header(self._head, b"content-length") or 0)
        self._end = head_end + 4 + self._body_size
        if self._end > len(self._buffer):
            self._make_room(self._end)

    def _answer(self) -> None:
        if self._filled > self._end:
            raise ValueError("a second request came before the first was answered")
        tail = self._buffer[max(0, self._end - _TAIL) : self._end]
        size, self._filled, self._end = self._body_size, 0, 0
        if b'"stream":true' not in tail:
            self._transport.write(billed(ANSWER, size))
        else:
            self._stream(USAGE_STREAM if b'"include_usage":true' in tail else PLAIN_STREAM, size)

    def _stream(self, stream: EventStream, size: int) -> None:
        pause = int(_header(self._head, PAUSE_HEADER.encode()) or 0) / 1000
        self._transport.write(stream.opening)
        self._running_stream = self._loop.call_later(
            _PAUSE_AFTER_FIRST, self._write, tuple(billed(each, size) for each in stream.following), 0, pause
        )

    def _write(self, chunks: tuple[bytes, ...], position: int, pause: float) -> None:
        self._running_stream = None
        self._transport.write(chunks[position])
        following = position + 1
        if following == len(chunks):
            return
        # Even without a pause each event is a write of its own, as from a model.
        if pause:
            self._running_stream = self._loop.call_later(pause, self._write, chunks, following, pause)
        else:
            self._running_stream = self._loop.call_soon(self._write, chunks, following, pause)


def _header(head: bytes, name: bytes) -> bytes | None:
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(FixedAnswers, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
