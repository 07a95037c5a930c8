"""What an answer says of its cost, read while it passes. Watching never harms what is watched."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import orjson

from proxy.decoding import Decoder, NotDecodable, decoder_for
from proxy.errors import UpstreamProtocolError
from proxy.headers import Headers, first
from proxy.sse import ChatStream
from proxy.usage import Usage, usage_from

# A larger plain answer (images as base64, say) is relayed all the same, only its usage goes unread.
MAX_COPY = 16 * 1024 * 1024


class Watch(Protocol):
    """`feed` every piece of the body and pass on what it returns, then `flush` once."""

    def feed(self, data: bytes) -> bytes: ...

    def flush(self) -> bytes: ...

    def usage(self) -> Usage | None: ...

    def said(self) -> object:
        """What a plain answer says, after its last byte, or the error that a stream began with; else None."""

    @property
    def cut(self) -> bool:
        """Did the body end without saying so? Asked where only the connection's end marks the end."""


class Unwatched:
    cut = False

    def feed(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""

    def usage(self) -> Usage | None:
        return None

    def said(self) -> object:
        return None


class WholeAnswer:
    """A plain JSON answer: a copy is kept, and read after the last byte has gone out."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._copy: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        self._size += len(data)
        if self._size <= MAX_COPY:
            self._copy.append(data)
        return data

    def flush(self) -> bytes:
        return b""

    def usage(self) -> Usage | None:
        return usage_from(self._answer)

    def said(self) -> object:
        return self._answer

    @property
    def cut(self) -> bool:
        return self._size <= MAX_COPY and self._answer is None

    @cached_property
    def _answer(self) -> object:
        """What the answer says; None where it is not JSON, or too large to have been kept."""
        if self._size > MAX_COPY:
            return None
        whole = b"".join(self._copy)
        try:
            return orjson.loads(self._decoder.feed(whole))
        except (NotDecodable, orjson.JSONDecodeError):
            return None


class TextAnswer(WholeAnswer):
    """Not JSON by its own account: a proxy's page, or a refusal that somebody has labelled badly."""

    cut = False

    @cached_property
    def _answer(self) -> object:
        try:
            return self._decoder.feed(b"".join(self._copy)).decode(errors="replace")
        except NotDecodable:
            return None


class StreamedAnswer:
    """An event stream that the client gets as it is; its events are read from a decoded copy."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder: Decoder | None = decoder
        self._stream = ChatStream(hide_usage=False)

    def feed(self, data: bytes) -> bytes:
        if self._decoder is not None:
            try:
                self._stream.feed(self._decoder.feed(data))
            except NotDecodable:
                self._decoder = None
        return data

    def flush(self) -> bytes:
        self._stream.flush()
        return b""

    def usage(self) -> Usage | None:
        return self._stream.usage

    def said(self) -> object:
        return self._stream.error

    @property
    def cut(self) -> bool:
        return self._decoder is not None and not self._stream.finished


class FilteredStream:
    """An event stream from which the usage chunk that we asked for is taken out; always relayed decoded."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._stream = ChatStream(hide_usage=True)

    def feed(self, data: bytes) -> bytes:
        try:
            return self._stream.feed(self._decoder.feed(data))
        except NotDecodable as broken:
            raise UpstreamProtocolError(f"The upstream's answer cannot be decoded: {broken}") from broken

    def flush(self) -> bytes:
        return self._stream.flush()

    def usage(self) -> Usage | None:
        return self._stream.usage

    def said(self) -> object:
        return self._stream.error

    @property
    def cut(self) -> bool:
        return not self._stream.finished


def is_an_error(said: object) -> bool:
    """Of what came with a status that promised an answer."""
    return isinstance(said, dict) and (bool(said.get("error")) or said.get("object") == "error")


def watch(headers: Headers, *, hide_usage: bool) -> Watch:
    """The right way to watch an answer with these headers."""
    media_type = (first(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    try:
        decoder = decoder_for(first(headers, b"content-encoding"))
    except NotDecodable:
        return Unwatched()
    if media_type == b"text/event-stream":
        return FilteredStream(decoder) if hide_usage else StreamedAnswer(decoder)
    if media_type.startswith(b"text/"):
        return TextAnswer(decoder)
    return WholeAnswer(decoder) if media_type.endswith(b"json") else Unwatched()
