"""Content codings: what clients send compressed, and answers compressed on request."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from proxy.simulator.answers import Answer, ApiError, Framing, Piece

# Each makes a pair: compress one piece so that it can be read at once, and finish.
Compressor = tuple[Callable[[Piece], bytes], Callable[[], bytes]]

GZIP_BITS = 16 + zlib.MAX_WBITS


def _zlib(bits: int) -> Compressor:
    stream = zlib.compressobj(wbits=bits)
    return lambda piece: stream.compress(piece) + stream.flush(zlib.Z_SYNC_FLUSH), stream.flush


def _brotli() -> Compressor:
    stream: Any = importlib.import_module("brotli").Compressor(quality=4)
    return lambda piece: stream.process(bytes(piece)) + stream.flush(), stream.finish


def _zstd() -> Compressor:
    stream: Any = importlib.import_module("backports.zstd").ZstdCompressor()
    return lambda piece: stream.compress(piece, mode=stream.FLUSH_BLOCK), stream.flush


CODINGS: dict[str, Callable[[], Compressor]] = {
    "zstd": _zstd,
    "br": _brotli,
    "gzip": lambda: _zlib(GZIP_BITS),
    "deflate": lambda: _zlib(zlib.MAX_WBITS),
}


def acceptable_coding(accept_encoding: str) -> str | None:
    """The first of our codings that the client takes; what it likes best is not asked."""
    accepted = {name for name, weight in map(_weighted, accept_encoding.split(",")) if weight > 0}
    return next((coding for coding in CODINGS if coding in accepted or "*" in accepted), None)


def _weighted(item: str) -> tuple[str, float]:
    name, _, parameter = item.partition(";")
    key, _, value = parameter.strip().partition("=")
    try:
        return name.strip().lower(), float(value) if key.strip() == "q" else 1.0
    except ValueError:
        return name.strip().lower(), 0.0


def encoded(answer: Answer, coding: str) -> Answer:
    if not answer.pieces:
        return answer
    pieces = tuple(_compressed(answer.pieces, CODINGS[coding]()))
    whole = pieces if answer.framing is Framing.CHUNKED else (b"".join(pieces),)
    headers = (*answer.headers, ("content-encoding", coding), ("vary", "accept-encoding"))
    return replace(answer, pieces=whole, headers=headers)


def _compressed(pieces: tuple[Piece, ...], compressor: Compressor) -> Iterator[bytes]:
    compress, finish = compressor
    for piece in pieces[:-1]:
        yield compress(piece)
    yield compress(pieces[-1]) + finish()


def decoded(body: bytes, content_encoding: str, limit: int) -> bytes:
    """A request body without its coding; a bomb or a broken body is the client's error."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _inflated(body, GZIP_BITS, limit)
        case "deflate":
            return _inflated(body, zlib.MAX_WBITS, limit)
        case other:
            raise ApiError(f"Unsupported content encoding: {other!r}.", status=415)


def _inflated(body: bytes, bits: int, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=bits)
    try:
        plain = stream.decompress(body, limit)
    except zlib.error as broken:
        raise ApiError(f"The compressed request body could not be decoded: {broken}.") from broken
    if stream.unconsumed_tail:
        raise ApiError("The request body is too large once decoded.", status=413)
    if not stream.eof:
        raise ApiError("The compressed request body could not be decoded: it ends too early.")
    return plain
