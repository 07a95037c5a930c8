"""Reading compressed answers from a copy; what the client gets stays as it was."""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


# One piece of an answer that unpacks to more than this is a bomb, not an answer.
MAX_DECODED = 16 * 1024 * 1024


class NotDecodable(Exception):
    """An encoding that we do not know, or bytes that are not what their label says."""


class Decoder(Protocol):
    def feed(self, data: bytes) -> bytes:
        """The decoded bytes; raises NotDecodable."""


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)

    def feed(self, data: bytes) -> bytes:
        try:
            decoded = self._stream.decompress(data, MAX_DECODED)
        except zlib.error as broken:
            raise NotDecodable(str(broken)) from broken
        _refuse_bomb(bool(self._stream.unconsumed_tail))
        return decoded


class _Deflate:
    """`deflate` means zlib's format, but some servers send the bare one: the first two bytes tell."""

    def __init__(self) -> None:
        self._start = b""
        self._stream: _Zlib | None = None

    def feed(self, data: bytes) -> bytes:
        if self._stream is None:
            self._start += data
            if len(self._start) < 2:
                return b""
            zlib_format = self._start[0] & 0x0F == 8 and int.from_bytes(self._start[:2]) % 31 == 0
            self._stream = _Zlib(zlib.MAX_WBITS if zlib_format else -zlib.MAX_WBITS)
            data = self._start
        return self._stream.feed(data)


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> bytes:
        try:
            decoded = bytes(self._stream.process(data, output_buffer_limit=MAX_DECODED))
        except brotli.error as broken:
            raise NotDecodable(str(broken)) from broken
        _refuse_bomb(not self._stream.can_accept_more_data())
        return decoded


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstd.ZstdDecompressor()

    def feed(self, data: bytes) -> bytes:
        try:
            decoded = self._stream.decompress(data, MAX_DECODED)
        except (zstd.ZstdError, EOFError) as broken:
            raise NotDecodable(str(broken)) from broken
        _refuse_bomb(len(decoded) >= MAX_DECODED)
        return decoded


class _Plain:
    def feed(self, data: bytes) -> bytes:
        return data


def _refuse_bomb(more: bool) -> None:
    if more:
        raise NotDecodable("one piece unpacks to more than 16 MiB")


def decoder_for(encoding: bytes | None) -> Decoder:
    match (encoding or b"").strip().lower():
        case b"" | b"identity":
            return _Plain()
        case b"gzip" | b"x-gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case b"deflate":
            return _Deflate()
        case b"br":
            return _Brotli()
        case b"zstd":
            return _Zstd()
        case other:
            raise NotDecodable(f"content encoding {other!r}")
