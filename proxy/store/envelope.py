"""What lies around a value in a shared store: until when it holds, and a mark that it is ours and whole.

Nobody but the reader can say what a key in somebody's Redis holds. What is not in an envelope of ours, or not
what was put into it, is as good as nothing.
"""

from __future__ import annotations

import struct
from zlib import crc32

# Mark, time, checksum of key and value: the checksum leaves the time out, so that the time can be renewed
# without reading the rest.
_LAYOUT = struct.Struct(">BQI")
HEADER = struct.Struct(">BQ")
_HOLDS, _FOR_GOOD = 1, 2
# Milliseconds. Scripts calculate with doubles, which know no larger whole numbers.
NEVER = 2**53


def header(expires: int | None) -> bytes:
    """`expires` is None for what is kept for good."""
    return HEADER.pack(_FOR_GOOD, NEVER) if expires is None else HEADER.pack(_HOLDS, min(expires, NEVER))


def body(key: bytes, value: bytes) -> bytes:
    return _checksum(key, value).to_bytes(4, "big") + value


def sealed(key: bytes, value: bytes, expires: int | None) -> bytes:
    return header(expires) + body(key, value)


def opened(key: bytes, stored: bytes, now: int) -> bytes | None:
    """The value; None where it is not ours, damaged, or over."""
    if len(stored) < _LAYOUT.size:
        return None
    mark, expires, checksum = _LAYOUT.unpack_from(stored)
    value = stored[_LAYOUT.size :]
    if mark not in (_HOLDS, _FOR_GOOD) or (mark == _HOLDS and expires <= now):
        return None
    return value if _checksum(key, value) == checksum else None


def is_over(stored: bytes, now: int) -> bool:
    """Nothing is wrong with it but its time."""
    if len(stored) < _LAYOUT.size:
        return False
    mark, expires, _ = _LAYOUT.unpack_from(stored)
    return bool(mark == _HOLDS and expires <= now)


def expires_at(stored: bytes) -> int | None:
    """Of an envelope that could be opened; None for good."""
    mark, expires = HEADER.unpack_from(stored)
    return None if mark == _FOR_GOOD else expires


def _checksum(key: bytes, value: bytes) -> int:
    return crc32(value, crc32(key))  # without a copy of both
