from __future__ import annotations

import mmap
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulator.answers import ApiError
from proxy.simulator.multipart import parts

TYPE = 'multipart/form-data; boundary="edge"'


def form(*contents: bytes) -> bytes:
    heads = [
        b'--edge\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n' % i for i in range(len(contents))
    ]
    return (
        b"".join(head + content + b"\r\n" for head, content in zip(heads, contents, strict=True))
        + b"--edge--"
    )


@given(st.lists(st.binary().filter(lambda content: b"--edge" not in content), max_size=4))
def test_finds_every_part_whatever_it_holds(contents: list[bytes]) -> None:
    assert [bytes(part.content) for part in parts(form(*contents), TYPE)] == contents


def test_finds_parts_in_a_body_on_disk() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"preamble\r\n" + form(b"one", b"two"))
        file.flush()
        body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert [part.content.tobytes() for part in parts(body, TYPE)] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(b"x"), "text/plain"),
        (form(b"x"), "multipart/form-data"),
        (b"", TYPE),
        (b"no boundary", TYPE),
        (form(b"x")[:-12], TYPE),
        (b"--edge\r\nContent-Disposition: form-data\r\n\r\nx\r\n--edge--", TYPE),
    ],
)
def test_refuses_a_broken_form(body: bytes, content_type: str) -> None:
    with pytest.raises(ApiError, match="form could not be read"):
        list(parts(body, content_type))
