"""Shorter tool results: where what must be kept does not fit, the middle of the largest goes first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.fold.history import Turn
from proxy.fold.utterance import RESULTS

# Of a result's text so much stays in any case, in tokens: enough to see what it was.
LEAST = 64
LEAST_IN_NEED = 16
NOTE = "\n[… {} characters left out here to fit the context window …]\n"

# Nearly always two or three do. Each takes away a twentieth at least.
_STEPS = 60

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_content = msgspec.json.Decoder(str | list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Shrunk:
    messages: Mapping[int, bytes]  # by their place among those given; what is not in here stays as it is
    saved: int  # in tokens


def without_middle(text: str, longest: int, note: str) -> str:
    """At most so many characters, or as few as the note has. `{}` in it becomes the number of those gone."""
    note_size = len(note) + len(str(len(text)))
    if len(text) <= max(longest, note_size):
        return text
    room = longest - note_size
    if room <= 0:
        return note.format(len(text))
    head, tail = _at_line_ends(text, room - room // 3, len(text) - room // 3)
    return text[:head] + note.format(tail - head) + text[tail:]


def _at_line_ends(text: str, head: int, tail: int) -> tuple[int, int]:
    """Whole lines are kept where the next break is not far."""
    before = text.rfind("\n", head - head // 8, head)
    after = text.find("\n", tail, tail + (len(text) - tail) // 8)
    return (before if before >= 0 else head), (after + 1 if after >= 0 else tail)


def shrunk(turns: Sequence[Turn], saving: int, count: Count, least: int = LEAST) -> Shrunk:
    """As evenly as can be: the largest texts in results come down to one size, at which enough is saved.

    Where even the least that may stay does not save that much, as much as there is.
    """
    results = {place: _Result.read(turn.raw) for place, turn in enumerate(turns) if turn.role in RESULTS}
    texts = [
        _Text(place, number, text, count(text))
        for place, result in results.items()
        for number, text in result.texts.items()
    ]
    cuts = _cuts(texts, saving, count, least)
    shorter: dict[int, dict[int, str]] = {}
    for cut in cuts:
        shorter.setdefault(cut.place, {})[cut.number] = cut.text
    messages = {place: results[place].with_texts(parts) for place, parts in shorter.items()}
    return Shrunk(messages, sum(cut.saved for cut in cuts))


@dataclass(frozen=True, slots=True)
class _Text:
    place: int  # of the message
    number: int  # of the part in its content
    text: str
    tokens: int
    saved: int = 0

    def cut(self, most: int, count: Count) -> _Text | None:
        """None where it is small enough already, or does not become smaller."""
        if self.tokens <= most:
            return None
        text, tokens, share = self.text, self.tokens, 1.0
        for _ in range(_STEPS):
            share *= min(most / tokens, 0.95)
            text = without_middle(self.text, int(len(self.text) * share), NOTE)
            tokens = count(text)
            if tokens <= most:
                break
        saved = self.tokens - tokens
        return _Text(self.place, self.number, text, tokens, saved) if saved > 0 else None


def _cuts(texts: Sequence[_Text], saving: int, count: Count, least: int) -> list[_Text]:
    sizes = [text.tokens for text in texts]
    wanted = saving
    while True:
        level = max(least, _level(sizes, wanted))
        cuts = [cut for text in texts if (cut := text.cut(level, count))]
        saved = sum(cut.saved for cut in cuts)
        if saved >= saving or level == least:
            return cuts
        # Some would not become smaller, as a note takes more tokens than it replaces.
        wanted += max(saving - saved, wanted // 8, 1)


def _level(sizes: Sequence[int], saving: int) -> int:
    """The size to which the largest must come down to give up that much together."""
    descending = sorted(sizes, reverse=True)
    above = 0
    for number, size in enumerate(descending, 1):
        above += size
        below = descending[number] if number < len(descending) else 0
        if above - number * below >= saving:
            return (above - saving) // number
    return 0


@dataclass(frozen=True, slots=True)
class _Result:
    """A tool's result, taken apart so far that its texts can be changed and nothing else is."""

    members: Mapping[str, Any]
    content: str | list[Any]
    texts: Mapping[int, str]  # by the part of the content that they stand in

    @classmethod
    def read(cls, raw: bytes) -> _Result:
        members = _members(msgspec.Raw(raw))
        content = _content(members.get("content"))
        parts = [content] if isinstance(content, str) else map(_text, content)
        return cls(members, content, {number: text for number, text in enumerate(parts) if text is not None})

    def with_texts(self, texts: Mapping[int, str]) -> bytes:
        if isinstance(self.content, str):
            return _json({**self.members, "content": texts[0]})
        parts = [
            {**_members(part), "text": texts[number]} if number in texts else part
            for number, part in enumerate(self.content)
        ]
        return _json({**self.members, "content": parts})


# Values are kept as the client spelled them, numbers that no parser keeps included. Only a message with half
# a surrogate pair in it, which JavaScript leaves when it cuts a text, is written anew from what it means.


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, msgspec.Raw):
        try:
            return _decode_object(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = _leniently(bytes(value))
    return value if isinstance(value, dict) else {}


def _leniently(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _content(value: Any) -> str | list[Any]:
    if isinstance(value, msgspec.Raw):
        try:
            value = _decode_content(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return []
    return value if isinstance(value, str | list) else []


def _text(part: Any) -> str | None:
    text = _members(part).get("text")
    if isinstance(text, msgspec.Raw):
        try:
            return _decode_text(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
    return text if isinstance(text, str) else None


def _json(message: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode()
