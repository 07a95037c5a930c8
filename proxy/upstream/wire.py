"""Reading HTTP/1.1 answers: bytes in, a head and body pieces out. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import httptools

from proxy.errors import UpstreamProtocolError
from proxy.headers import Headers, first

MAX_HEAD = 256 * 1024


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    reason: bytes
    headers: Headers


class AnswerReader:
    """One connection's answers, one at a time. `expect()` before each; then feed until `complete`."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.expect(bodiless=False)
        self._expecting = False

    def expect(self, *, bodiless: bool) -> None:
        """Make ready for the next answer; `bodiless` for HEAD, whose Content-Length is only a claim."""
        self.head: Head | None = None
        self.pieces: list[bytes] = []
        self.complete = False
        self.keep_alive = False
        self.close_delimited = False
        self._expecting = True
        self._bodiless = bodiless
        self._reason = b""
        self._headers: Headers = []
        self._head_size = 0
        self._surplus = False
        self._coded = False  # framed in a way that we could not label again

    def feed(self, data: bytes) -> None:
        if not self._expecting:
            raise UpstreamProtocolError("The upstream sent bytes that nobody asked for.")
        if self.head is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as problem:
            raise UpstreamProtocolError(
                "The upstream wants to switch protocols, which nobody asked for."
            ) from problem
        except httptools.HttpParserError as problem:
            # A HEAD's body that llhttp still waits for, or what follows it, is no error of the answer.
            if not (self._bodiless and self.complete):
                raise UpstreamProtocolError(
                    f"The upstream's answer is not valid HTTP: {problem}"
                ) from problem
        if self._coded:
            raise UpstreamProtocolError("The upstream's answer has a transfer encoding other than chunked.")
        if self.head is None and self._head_size > MAX_HEAD:
            raise UpstreamProtocolError("The head of the upstream's answer is too large.")
        if self.complete:
            self._expecting = False
            # Bytes behind the end belong to no request of ours: such a connection is not used again.
            self.keep_alive = self.keep_alive and not self._surplus
            if self._bodiless:
                self._parser = httptools.HttpResponseParser(self)

    def take(self) -> bytes:
        """The body bytes that came since the last call."""
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces = []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end_of_connection(self) -> bool:
        """Tell the reader that the connection ended; true if the answer is whole all the same."""
        if self.head is not None and self.close_delimited:
            self.complete = True
        return self.complete

    # Called by httptools.

    def on_message_begin(self) -> None:
        self._surplus = self.complete
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # trailers come through here too, and end here
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._surplus:
            return
        self.head = Head(status, self._reason, self._headers)
        coding = first(self._headers, b"transfer-encoding")
        self._coded = coding is not None and coding.strip().lower() != b"chunked"
        framed = coding is not None or first(self._headers, b"content-length") is not None
        self.close_delimited = not (framed or self._bodiless or status in (204, 304))
        if self._bodiless:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if not self._bodiless and not self._surplus:
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        if self.head is None or self.complete:  # an interim answer; the final one follows
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()
