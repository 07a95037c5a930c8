"""A chat request as the client wrote it: the bytes, and the few things in them that we need to know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

_ASK = b'"stream_options":{"include_usage":true}'


class _Fields(msgspec.Struct):
    """What we read of the body. The rest is skipped over, which costs a fifth of parsing it."""

    model: Any = None
    stream: Any = None
    stream_options: Any = msgspec.UNSET


_decode = msgspec.json.Decoder(_Fields).decode


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`readable` is false where the body is not a JSON object, or is compressed."""

    raw: bytes
    readable: bool
    model: str | None = None
    streams: bool = False
    stream_options: Any = msgspec.UNSET  # UNSET: the client said nothing, which is not null

    @property
    def asks_for_usage(self) -> bool:
        options = self.stream_options
        return isinstance(options, dict) and options.get("include_usage") is True


def read(raw: bytes, *, compressed: bool) -> ChatRequest:
    """What we cannot read is the upstream's business: it is forwarded all the same."""
    if compressed:
        return ChatRequest(raw, readable=False)
    try:
        fields = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ChatRequest(raw, readable=False)
    model = fields.model if isinstance(fields.model, str) else None
    return ChatRequest(raw, True, model, fields.stream is True, fields.stream_options)


def asking_for_usage(request: ChatRequest) -> bytes | None:
    """The client's bytes with `include_usage` put in; None where that is not possible or not wanted.

    Spliced, not serialised again: key order, spacing, escapes and large numbers stay the client's own.
    """
    if not request.readable or not request.streams or request.asks_for_usage:
        return None
    raw, options = request.raw, request.stream_options
    if options is msgspec.UNSET:
        end = raw.rindex(b"}")
        return raw[:end] + b"," + _ASK + raw[end:]
    if options is not None and not isinstance(options, dict):
        return None  # a mistake of the client's: the upstream will say so
    spans = [span for key, span in _top_level_values(raw) if key == "stream_options"]
    if len(spans) != 1:
        return None
    (start, end) = spans[0]
    return raw[:start] + orjson.dumps({**(options or {}), "include_usage": True}) + raw[end:]


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)


def _top_level_values(raw: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each key of the outermost object with the place of its value; `raw` is known to be a valid object."""
    depth = 0
    key: str | None = None
    start = -1  # where the current value begins; -1 while a key is awaited
    for token in _TOKEN.finditer(raw):
        text = token.group()
        if text in b"}]" or (text == b"," and depth == 1):
            if depth == 1 and key is not None:
                yield key, _trimmed(raw, start, token.start())
                key, start = None, -1
            depth -= text != b","
        elif text in b"{[":
            depth += 1
        elif depth == 1 and start < 0:
            if text == b":":
                start = token.end()
            else:
                key = orjson.loads(text)


def _trimmed(raw: bytes, start: int, end: int) -> tuple[int, int]:
    value = raw[start:end]
    start += len(value) - len(value.lstrip())
    return start, start + len(value.strip())
