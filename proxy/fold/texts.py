"""The texts in a message that may be cut where it does not fit: it is taken apart so far that these can be
changed, and nothing else is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from typing import Any

import msgspec

from proxy.fold.utterance import RESULTS

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_SPEAKING = frozenset({"assistant"})

# Of a valid document every string, and the colon behind it where it is a key.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?', re.DOTALL)


class Part(IntEnum):
    """What a text is to its message, in the order in which they are cut."""

    RESULT = 1  # what a tool has said
    SPEECH = 2  # what the assistant has said
    ARGUMENTS = 3  # what the assistant has called a tool with


@dataclass(frozen=True, slots=True)
class Within:
    """A string in a document that is itself written in a string, by its number."""

    number: int


Path = tuple[str | int | Within, ...]


@dataclass(frozen=True, slots=True)
class Text:
    path: Path  # to it, in its message
    text: str


def texts(raw: bytes, role: str, part: Part, longer_than: int = 0) -> list[Text]:
    """Those of a result or of the assistant. Nobody else's words are cut."""
    if role not in (RESULTS if part is Part.RESULT else _SPEAKING):
        return []
    message = _members(msgspec.Raw(raw))
    found = _of_calls(message) if part is Part.ARGUMENTS else _of_content(message)
    return [each for each in found if len(each.text) > longer_than]


def with_texts(raw: bytes, changed: Mapping[Path, str]) -> bytes:
    """The message with other texts in their places."""
    return _json(_replaced(_members(msgspec.Raw(raw)), changed))


def _of_content(message: Mapping[str, Any]) -> Iterator[Text]:
    content = message.get("content")
    if (text := _text(content)) is not None:
        yield Text(("content",), text)
        return
    for number, piece in enumerate(_items(content)):
        if (text := _text(_members(piece).get("text"))) is not None:
            yield Text(("content", number, "text"), text)


def _of_calls(message: Mapping[str, Any]) -> Iterator[Text]:
    yield from _of_arguments(message, ("function_call", "arguments"))
    for number, call in enumerate(_items(message.get("tool_calls"))):
        yield from _of_arguments(call, ("function", "arguments"), ("tool_calls", number))
        yield from _of_arguments(call, ("custom", "input"), ("tool_calls", number))


def _of_arguments(value: Any, names: tuple[str, str], before: Path = ()) -> Iterator[Text]:
    """A JSON document stays one, with the same keys: only strings in it are cut. What is none is free text
    or was broken off.
    """
    outer, inner = names
    text = _text(_members(_members(value).get(outer)).get(inner))
    if text is None:
        return
    path: Path = (*before, outer, inner)
    try:
        # Numbers are not read: one of many digits is none to Python.
        json.loads(text, parse_int=str, parse_float=str)
    except RecursionError:
        return
    except ValueError:
        yield Text(path, text)
        return
    for number, string in enumerate(_STRING.finditer(text)):
        if string[1] is None:
            yield Text((*path, Within(number)), json.loads(string[0]))


def _replaced(value: Any, changed: Mapping[Path, str]) -> Any:
    if (text := changed.get(())) is not None:
        return text
    inner: dict[str | int | Within, dict[Path, str]] = {}
    for path, text in changed.items():
        inner.setdefault(path[0], {})[path[1:]] = text
    match next(iter(inner)):
        case str():
            members = _members(value)
            return {
                name: _replaced(each, inner[name]) if name in inner else each
                for name, each in members.items()
            }
        case int():
            return [_replaced(each, inner[n]) if n in inner else each for n, each in enumerate(_items(value))]
        case Within():
            return _with_strings(_text(value) or "", {step: each[()] for step, each in inner.items()})


def _with_strings(document: str, changed: Mapping[Any, str]) -> str:
    numbers = count()

    def written(string: re.Match[str]) -> str:
        text = changed.get(Within(next(numbers)))
        return string[0] if text is None else _written(text)

    return _STRING.sub(written, document)


def _written(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


# Values are kept as the client spelled them, numbers that no parser keeps included. Only a message with half
# a surrogate pair in it, which JavaScript leaves when it cuts a text, is written anew from what it means.


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, msgspec.Raw):
        try:
            return _decode_object(value)
        except _UNREADABLE:
            value = _leniently(bytes(value))
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, msgspec.Raw):
        try:
            return _decode_list(value)
        except _UNREADABLE:
            return []
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    if isinstance(value, msgspec.Raw):
        try:
            return _decode_text(value)
        except _UNREADABLE:
            return None
    return value if isinstance(value, str) else None


def _leniently(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _json(message: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode()
