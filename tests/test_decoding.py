from __future__ import annotations

import gzip
import sys
import zlib

import brotli
import pytest

from proxy.decoding import MAX_DECODED, NotDecodable, decoder_for

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b'{"usage":{"prompt_tokens":1}}' * 50


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


ENCODINGS = [
    (None, bytes),
    (b"identity", bytes),
    (b"gzip", gzip.compress),
    (b"X-GZIP", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", bare_deflate),
    (b"br", brotli.compress),
    (b"zstd", zstd.compress),
]


@pytest.mark.parametrize(("name", "encode"), ENCODINGS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_each_encoding_is_read_in_pieces_of_any_size(name: bytes | None, encode: object, size: int) -> None:
    packed = encode(TEXT)  # type: ignore[operator]
    decoder = decoder_for(name)
    assert b"".join(decoder.feed(packed[i : i + size]) for i in range(0, len(packed), size)) == TEXT


@pytest.mark.parametrize("name", [b"gzip", b"deflate", b"br", b"zstd"])
def test_bytes_that_are_not_what_their_label_says_are_told(name: bytes) -> None:
    with pytest.raises(NotDecodable):
        decoder_for(name).feed(b"\x00\x01 this is plain text, not packed at all" * 10)


@pytest.mark.parametrize("name", [b"gzip, br", b"compress", b"snappy"])
def test_an_unknown_encoding_is_told(name: bytes) -> None:
    with pytest.raises(NotDecodable):
        decoder_for(name)


@pytest.mark.parametrize(
    ("name", "encode"), [(b"gzip", gzip.compress), (b"br", brotli.compress), (b"zstd", zstd.compress)]
)
def test_a_bomb_is_refused(name: bytes, encode: object) -> None:
    bomb = encode(bytes(MAX_DECODED * 2))  # type: ignore[operator]
    with pytest.raises(NotDecodable):
        decoder_for(name).feed(bomb)
