"""What a message says, whatever its spelling, and a digest that names it.

Two messages have one identity exactly when they say the same. What clients drop or rewrite when they send a
history again is left out, everything else counts, a field that nobody knows included:

- Spelling: white space, key order, escapes, how a number is written. Of a key said twice the last counts.
- Nothing: a member that is null or empty is the same as none. SDKs write `"refusal": null`,
  `"annotations": []` or `"content": ""` beside tool calls as they please.
- Shape: a string is a list of one text. Two texts are *not* one joined: no client is known that joins them in
  one turn and parts them in the next, and where one does, the price is a summary made anew.
- `cache_control`: clients move it along as a conversation grows.
- In an assistant's message what it thought, in all its forms, and white space around its texts: clients keep
  thoughts for a turn or not at all, and trim what providers refuse. A user's own `<think>` is text.
- Calls: arguments are the JSON that they spell, and a call without any is one with `{}`. Inside of them
  nothing is left out: there `cache_control` or null are somebody's data.

What cannot be told apart by its meaning (numbers that no parser keeps, text that is no text, nesting without
end, no object at all) is named by its bytes: then spelling counts, and the worst is a miss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from proxy.fold.history import DIGEST_SIZE

_NOT_RESENT = frozenset({"cache_control"})
_THOUGHTS = frozenset(
    {
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "reasoning_text",
        "reasoning_opaque",
        "thinking",
        "thinking_blocks",
        "thought_signature",
        "provider_specific_fields",  # where litellm keeps signatures, and copies of what stands elsewhere
    }
)
_THINKING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_ARGUMENTS = frozenset({"arguments", "input"})

# Beyond these a double stands for several integers.
_EXACT = 2**53
# Nobody writes such messages, and encoders give up not far beyond.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Said:
    """One message: who speaks, the digest of what is said, and which tool calls it makes or answers."""

    role: str  # empty where the message does not say
    identity: bytes
    calls: tuple[str, ...]  # the ids of the tool calls in it; of a legacy call the function's name
    answers: str | None  # the id of the call whose result it is; of a legacy result the name


class _Inexact(Exception):
    """As it was parsed, this could be several things."""


def said(raw: bytes, tenant: bytes) -> Said:
    """Reads any bytes. The digest is the tenant's own: what others say never has the same."""
    message = _object(raw)
    if message is None:
        return Said("", _digest(raw, tenant, b"bytes"), (), None)
    role = message.get("role")
    return Said(
        role if isinstance(role, str) else "",
        _identity(message, raw, tenant),
        tuple(_calls(message)) if role == "assistant" else (),
        _answers(message, role),
    )


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        message = orjson.loads(raw)
    except orjson.JSONDecodeError:
        message = _leniently(raw)
    return message if isinstance(message, dict) else None


def _leniently(raw: bytes) -> Any:
    """Half a surrogate pair or 1e400 somewhere in a tool's result must not part it from its call."""
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError):
        return None


def _calls(message: dict[str, Any]) -> list[str]:
    calls, legacy = message.get("tool_calls"), message.get("function_call")
    found = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(legacy, dict):
        found.append(legacy.get("name"))
    return [name for name in found if isinstance(name, str)]


def _answers(message: dict[str, Any], role: object) -> str | None:
    match role:
        case "tool":
            name = message.get("tool_call_id")
        case "function":
            name = message.get("name")
        case _:
            return None
    return name if isinstance(name, str) else None


def _identity(message: dict[str, Any], raw: bytes, tenant: bytes) -> bytes:
    reading = _OF_ASSISTANTS if message.get("role") == "assistant" else _OF_OTHERS
    try:
        # Canonical, so that the bytes differ where the meanings do.
        meaning = orjson.dumps(reading.message(message), option=orjson.OPT_SORT_KEYS)
    except (_Inexact, orjson.JSONEncodeError):
        return _digest(raw, tenant, b"bytes")
    return _digest(meaning, tenant, b"meaning")


def _digest(content: bytes, tenant: bytes, kind: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_SIZE, key=tenant, person=kind).digest()


# As a member these are the same as none. Neither false nor zero is among them.
_NOTHING: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class _Reading:
    """How messages of one kind of speaker are read. Every step takes parsed JSON and returns what counts."""

    dropped: frozenset[str]
    is_assistant: bool

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        return _pruned((key, self._field(key, value)) for key, value in message.items() if self._counts(key))

    def _counts(self, key: str) -> bool:
        return key not in self.dropped

    def _field(self, key: str, value: Any) -> Any:
        if key == "content":
            return self._content(value)
        if key == "tool_calls" and self.is_assistant and isinstance(value, list):
            return [self._essence(_call(each), 1) for each in value]
        return self._member(key, value, 0)

    def _content(self, content: Any) -> list[Any]:
        parts = content if isinstance(content, list) else [content]
        said = [self._part(part) for part in parts if not (self.is_assistant and _is_thinking(part))]
        if self.is_assistant:
            said = _without_thought(said)
        return [part for part in said if part not in _NOTHING]

    def _part(self, part: Any) -> Any:
        """A text as a string, anything else as what it is."""
        part = self._essence(part, 1)
        if isinstance(part, dict) and part.get("type") == "text" and part.keys() <= {"type", "text"}:
            text = part.get("text", "")
            return text if isinstance(text, str) else part
        return part

    def _essence(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            _refuse_depth(depth)
            return _pruned(
                (key, self._member(key, each, depth)) for key, each in value.items() if self._counts(key)
            )
        if isinstance(value, list):
            _refuse_depth(depth)
            return [self._essence(each, depth + 1) for each in value]
        return _scalar(value)

    def _member(self, key: str, value: Any, depth: int) -> Any:
        if key == "arguments" and self.is_assistant:
            return _arguments(value)
        if key in _ARGUMENTS:
            return _data(value, depth + 1)
        return self._essence(value, depth + 1)


_OF_ASSISTANTS = _Reading(_NOT_RESENT | _THOUGHTS, is_assistant=True)
_OF_OTHERS = _Reading(_NOT_RESENT, is_assistant=False)


def _pruned(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in members if value not in _NOTHING}


def _is_thinking(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and kind in _THINKING_PARTS


def _without_thought(said: list[Any]) -> list[Any]:
    """Without a `<think>` block at the beginning, and white space at the ends of texts."""
    trimmed = [part.strip() if isinstance(part, str) else part for part in said]
    first = trimmed[0] if trimmed else None
    if isinstance(first, str) and first.startswith("<think>"):
        thought, closed, answer = first.partition("</think>")
        trimmed[0] = answer.lstrip() if closed else thought
    return trimmed


def _call(call: Any) -> Any:
    """Without what only streams need, and without the kind that every call has unless it says so."""
    if not isinstance(call, dict):
        return call
    return {
        key: value
        for key, value in call.items()
        if key != "index" and not (key == "type" and value == "function")
    }


def _arguments(written: Any) -> Any:
    """What they spell, marked as such; as they are written where that is no JSON, or none that is exact."""
    if not isinstance(written, str):
        return _marked(_data(written, 0))
    try:
        return _marked(_data(orjson.loads(written), 0)) if written else None
    except (orjson.JSONDecodeError, _Inexact):
        return {"text": written}


def _marked(arguments: Any) -> dict[str, Any] | None:
    return {"json": arguments} if arguments not in (None, {}) else None


def _data(value: Any, depth: int) -> Any:
    """All of it: only numbers become one spelling."""
    if isinstance(value, dict):
        _refuse_depth(depth)
        return {key: _data(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        _refuse_depth(depth)
        return [_data(each, depth + 1) for each in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """1.0 is 1, as JavaScript writes it."""
    if not isinstance(value, float):
        return value
    if not abs(value) < _EXACT:
        raise _Inexact
    return int(value) if value.is_integer() else value


def _refuse_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise _Inexact
