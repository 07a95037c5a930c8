from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.counting.image_size import MOST_BYTES, Size, size_in, size_of


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06\x00\x00\x00"


def gif(width: int, height: int, version: bytes = b"89a") -> bytes:
    return b"GIF" + version + struct.pack("<HH", width, height) + b"\xf7\x00\x00"


def webp(chunk: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 1000) + b"WEBP" + chunk + struct.pack("<I", 988) + body + bytes(20)


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14))


def extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x10\x00\x00\x00" + sides)


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg(width: int, height: int, *before: bytes, frame: int = 0xC0) -> bytes:
    start = segment(frame, struct.pack(">BHHB", 8, height, width, 3) + bytes(9))
    return b"\xff\xd8" + b"".join(before) + start


APP0 = segment(0xE0, b"JFIF\x00" + bytes(9))
EXIF = segment(0xE1, b"Exif\x00\x00" + jpeg(160, 120) + bytes(20_000))  # with a thumbnail inside
TABLES = segment(0xC4, bytes(30)) + segment(0xDB, bytes(65))


def data_url(image: bytes, head: str = "data:image/png;base64") -> str:
    return f"{head},{base64.b64encode(image).decode()}"


@pytest.mark.parametrize(
    ("image", "size"),
    [
        (png(1, 1), (1, 1)),
        (png(640, 480), (640, 480)),
        (png(65_535, 3), (65_535, 3)),
        (gif(320, 200), (320, 200)),
        (gif(320, 200, b"87a"), (320, 200)),
        (lossy(550, 368), (550, 368)),
        (lossy(550 | 0x4000, 368 | 0x8000), (550, 368)),
        (lossless(386, 395), (386, 395)),
        (lossless(16_384, 1), (16_384, 1)),
        (extended(4000, 3000), (4000, 3000)),
        (jpeg(800, 600), (800, 600)),
        (jpeg(800, 600, APP0, EXIF, TABLES), (800, 600)),
        (jpeg(800, 600, APP0, b"\xff\xff\xff", TABLES, frame=0xC2), (800, 600)),
        (jpeg(800, 600, b"\xff\xd0", b"\xff\x01"), (800, 600)),
    ],
)
def test_the_size_stands_in_the_header(image: bytes, size: Size) -> None:
    content = image + bytes(500)
    assert size_in(data_url(content)) == size
    assert size_in(data_url(content, "data:image/webp;charset=x;BASE64")) == size
    assert size_of(base64.b64encode(content).decode()) == size
    assert size_of(base64.urlsafe_b64encode(content).decode()) == size
    assert size_of(base64.b64encode(content).decode().rstrip("=")) == size


@pytest.mark.parametrize("broken_by", ["\n", "\r\n"])
def test_base64_may_be_broken_into_lines(broken_by: str) -> None:
    whole = base64.b64encode(jpeg(800, 600, APP0, EXIF) + bytes(2 * MOST_BYTES)).decode()
    lines = broken_by.join(whole[i : i + 76] for i in range(0, len(whole), 76))
    assert size_of(lines) == (800, 600)


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"BM" + bytes(60),  # a format that is not read
        b"<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10'/>",
        png(0, 10),
        png(10, 2**31),
        png(10, 10)[:20],
        png(10, 10).replace(b"IHDR", b"CgBI"),
        gif(0, 0),
        gif(10, 10)[:8],
        webp(b"ALPH", bytes(20)),
        lossy(10, 10)[:27],
        lossy(10, 10).replace(b"WEBP", b"WAVE"),
        b"\xff\xd8",
        b"\xff\xd8" + APP0,
        jpeg(800, 0),
        jpeg(800, 600, b"\x00"),
        jpeg(800, 600, *[segment(0xE2, bytes(30_000))] * 3),  # past what is looked at
        b"\xff\xd8" + b"\xff" * MOST_BYTES,
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * MOST_BYTES,
    ],
)
def test_a_broken_header_has_no_size(image: bytes) -> None:
    assert size_in(data_url(image)) is None
    assert size_of(base64.b64encode(image).decode()) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://example.com/cat.png",
        "https://example.com/cat,dog.png",
        "file:///etc/passwd",
        "data:image/png;base64",
        "data:image/png,%89PNG",
        "data:image/png;base64,***",
        "data:image/png;base64,ünïcode",
        "data:" + "x" * 300 + ";base64," + base64.b64encode(png(1, 1)).decode(),
    ],
)
def test_what_is_no_data_url_has_no_size(url: str) -> None:
    assert size_in(url) is None


HEADS = st.sampled_from([b"", png(9, 9), gif(9, 9), lossy(9, 9), lossless(9, 9), jpeg(9, 9, APP0)])


@given(HEADS, st.integers(0, 40), st.binary(max_size=80))
@example(b"", 0, b"\xff\xd8\xff\xc0")
def test_no_bytes_can_upset_it(head: bytes, kept: int, garbage: bytes) -> None:
    size = size_in(data_url(head[:kept] + garbage))
    assert size is None or (0 < size[0] <= 65_535 and 0 < size[1] <= 65_535)


@given(st.text())
def test_no_text_can_upset_it(text: str) -> None:
    assert size_in(text) is None or "," in text
    size_of(text)
