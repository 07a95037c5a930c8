"""One connection to the upstream: sends a request, hands over the answer as it comes."""

from __future__ import annotations

import asyncio
from typing import cast

from proxy.errors import UpstreamDisconnected, UpstreamProtocolError, UpstreamTimeout
from proxy.upstream.wire import AnswerReader, Head

# Above this many unread bytes the upstream is asked to wait for a slow client.
HIGH_WATER = 256 * 1024


class Connection(asyncio.Protocol):
    """The transport's end of an upstream connection; at most one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, first_byte: float, idle: float) -> None:
        self._loop = loop
        self._first_byte = first_byte
        self._idle = idle
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._full_since = 0.0  # since when the upstream takes no more of the request …
        self._unsent = 0  # … of which this much was left then
        self._reading_paused = False
        self._unread = 0
        self._deadline = 0.0
        self._watchdog: asyncio.TimerHandle | None = None
        self.answered = False  # has any byte of the current answer arrived?
        self.idle_since = 0.0

    # The request.

    def begin(self, *, bodiless_answer: bool) -> None:
        self._reader.expect(bodiless=bodiless_answer)
        self.answered = False
        self._unread = 0
        self._deadline = self._loop.time() + self._first_byte
        if self._watchdog is None:
            self._watch()

    def write(self, *data: bytes) -> None:
        if self._transport is not None:
            self._transport.writelines(data)
        # The answer is awaited from the last byte that was sent, however long the upload took.
        self._deadline = self._loop.time() + self._first_byte

    async def drained(self) -> None:
        """Wait while the upstream takes no more; a failure of the connection ends the wait."""
        if self._writing_paused and self._failure is None:
            self._writable = self._loop.create_future()
            try:
                await self._writable
            finally:
                self._writable = None
        if self._failure is not None:
            raise self._failure

    # The answer.

    async def head(self) -> Head:
        while self._reader.head is None:
            await self._more()
        return self._reader.head

    async def read(self) -> bytes:
        """The body bytes that are there, waiting for some if there are none; b"" at the end."""
        while not self._reader.pieces:
            if self._reader.complete:
                return b""
            await self._more()
        return self.read_ready()

    def read_ready(self) -> bytes:
        """The body bytes that are there already, without waiting."""
        data = self._reader.take()
        self._unread -= len(data)
        if self._reading_paused and self._unread < HIGH_WATER and self._transport is not None:
            self._reading_paused = False
            self._deadline = self._loop.time() + self._idle
            self._transport.resume_reading()
        return data

    def put_back(self, data: bytes) -> None:
        if data:
            self._reader.pieces.insert(0, data)
            self._unread += len(data)

    @property
    def complete(self) -> bool:
        return self._reader.complete

    @property
    def close_delimited(self) -> bool:
        return self._reader.close_delimited

    @property
    def reusable(self) -> bool:
        return self._reader.complete and self._reader.keep_alive and self.alive and not self._holds_back()

    def _holds_back(self) -> bool:
        """Is some of the last request still unsent? An upstream may answer before it has read all."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    @property
    def alive(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    async def _more(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The end.

    def rest(self) -> None:
        """Between two requests nothing is awaited, so nothing can be late."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        self.idle_since = self._loop.time()

    def abort(self) -> None:
        """Drop the connection now; whatever the upstream is doing for it is not wanted any more."""
        self.rest()
        if self._transport is not None:
            self._transport.abort()

    def fail(self, failure: BaseException) -> None:
        """End the exchange with `failure`: whoever waits for the answer gets it raised."""
        if self._failure is None:
            self._failure = failure
        for waiting in (self._waiter, self._writable):
            if waiting is not None and not waiting.done():
                if self._reader.complete and waiting is self._waiter:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(self._failure)
        self.abort()

    def _watch(self) -> None:
        self._watchdog = None
        now = self._loop.time()
        if self._reading_paused:
            self._deadline = now + self._idle  # a slow client is not a silent upstream
        elif self._writing_paused:
            self._deadline = self._taken_last(now) + self._idle
        if now < self._deadline:
            # The deadline comes nearer when the answer begins, but never nearer than the idle time.
            self._watchdog = self._loop.call_at(min(self._deadline, now + self._idle), self._watch)
        elif not self._reader.complete:
            self.fail(UpstreamTimeout(self._what_is_late()))

    def _taken_last(self, now: float) -> float:
        """When the upstream last took some of the request, as far as the looks at it can tell."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unsent != self._unsent:
            self._unsent, self._full_since = unsent, now
        return self._full_since

    def _what_is_late(self) -> str:
        if self._writing_paused:
            return f"The upstream took nothing of the request for {self._idle:g} s."
        if self.answered:
            return f"The upstream sent nothing for {self._idle:g} s in the middle of its answer."
        return f"The upstream did not begin to answer within {self._first_byte:g} s."

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.answered = True
        self._deadline = self._loop.time() + self._idle
        try:
            self._reader.feed(data)
        except UpstreamProtocolError as problem:
            self.fail(problem)
            return
        self._unread = sum(map(len, self._reader.pieces))
        if self._unread > HIGH_WATER and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc)
        self._transport = None

    def _lost(self, exc: Exception | None) -> None:
        if exc is None and self._reader.end_of_connection():
            self._wake()
        elif self._failure is None:
            failure = UpstreamDisconnected(
                "The upstream closed the connection before its answer was complete."
            )
            failure.__cause__ = exc
            self.fail(failure)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._full_since = self._loop.time()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
