"""How large an image is, read from the first bytes of it that a data URL carries."""

from __future__ import annotations

import binascii
from collections.abc import Callable

Size = tuple[int, int]

# A JPEG says its size after its metadata (a thumbnail, a colour profile); past this we do not look for it.
MOST_BYTES = 64 * 1024
_FEW_BYTES = 48  # enough for the other formats
# The URL-safe alphabet is taken for the usual one; line breaks, which some encoders put in, are left out.
_PLAIN = str.maketrans("-_", "+/", "\r\n")


def size_in(data_url: str) -> Size | None:
    """Width and height; None where the format is not known or the header is broken."""
    comma = data_url.find(",", 0, 256)
    if comma < 0 or ";base64" not in data_url[:comma].lower():
        return None
    return size_of(data_url, comma + 1)


def size_of(base64: str, start: int = 0) -> Size | None:
    """The same for bare base64, which begins at `start`."""
    head = _decoded(base64, start, _FEW_BYTES)
    for magic, read in _FORMATS:
        if head.startswith(magic):
            return _sensible(read(head))
    if head.startswith(b"\xff\xd8"):
        return _sensible(_jpeg(_decoded(base64, start, MOST_BYTES)))
    return None


def _decoded(base64: str, start: int, size: int) -> bytes:
    text = base64[start : start + size // 3 * 4].translate(_PLAIN)
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except ValueError:  # not base64 after all
        return b""


def _sensible(size: Size | None) -> Size | None:
    return size if size is not None and min(size) > 0 and max(size) <= 0xFFFF else None


def _png(head: bytes) -> Size | None:
    if len(head) < 24 or head[12:16] != b"IHDR":
        return None
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _gif(head: bytes) -> Size | None:
    return _little(head, 6, 2) if len(head) >= 10 else None


def _webp(head: bytes) -> Size | None:
    if len(head) < 30 or head[8:12] != b"WEBP":
        return None
    match head[12:16]:
        case b"VP8 ":  # the upper two bits of each are a scale that nobody uses
            width, height = _little(head, 26, 2)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = _little(head, 24, 3)
            return width + 1, height + 1
    return None


def _little(head: bytes, start: int, size: int) -> Size:
    middle, end = start + size, start + 2 * size
    return int.from_bytes(head[start:middle], "little"), int.from_bytes(head[middle:end], "little")


_NOT_A_FRAME = {0xC4, 0xC8, 0xCC}  # tables that stand among the frame markers
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}


def _jpeg(data: bytes) -> Size | None:
    """Walks from segment to segment until the one that begins the frame."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_A_FRAME:
            height, width = data[place + 5 : place + 7], data[place + 7 : place + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        if marker == 0xFF:  # padding
            place += 1
        elif marker in _WITHOUT_LENGTH:
            place += 2
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


_FORMATS: list[tuple[bytes, Callable[[bytes], Size | None]]] = [
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
]
