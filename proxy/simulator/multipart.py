"""Form uploads, found in place: a part is a view into the body, in memory or on disk."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser

from proxy.simulator.answers import ApiError


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    filename: str | None
    content: memoryview


def parts(body: bytes | mmap.mmap, content_type: str) -> Iterator[Part]:
    delimiter = b"\r\n--" + _boundary(content_type)
    opening = len(delimiter) - 2  # the first delimiter may stand at the very beginning, without a line break
    end = 0 if body[:opening] == delimiter[2:] else body.find(delimiter)
    start = opening if end == 0 else end + len(delimiter)
    while end >= 0 and body[start : start + 2] != b"--":
        end = body.find(delimiter, start)
        headers_end = body.find(b"\r\n\r\n", start)
        if not 0 <= headers_end < end:
            raise _broken("a part has no end")
        yield _part(body[start:headers_end], memoryview(body)[headers_end + 4 : end])
        start = end + len(delimiter)
    if end < 0:
        raise _broken("its boundary does not occur")


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise _broken("its content type is not multipart/form-data with a boundary")
    return boundary.encode("latin-1")


def _part(raw_headers: bytes, content: memoryview) -> Part:
    headers = HeaderParser().parsestr(raw_headers.decode("utf-8", "replace").lstrip())
    name = headers.get_param("name", header="content-disposition")
    if not isinstance(name, str):
        raise _broken("a part has no name")
    return Part(name, headers.get_filename(), content)


def _broken(why: str) -> ApiError:
    return ApiError(f"The form could not be read: {why}.")
