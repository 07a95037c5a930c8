"""Reading a chat stream on its way through: bytes in, the client's bytes out. No I/O.

The stream may be cut at any byte. What passes is never rewritten; at most one event is taken out, the
usage chunk that we asked for and the client did not.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from proxy.usage import Usage, usage_from

# An event that has not ended by then is no usage chunk: it is passed on in pieces, unread.
MAX_EVENT = 64 * 1024

# A line ends with CR LF, LF or CR, an event with an empty line. Atomic, or CR LF would pass for two ends.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
# Inside a JSON string every quote is escaped, so these never match what a model wrote.
_HAS_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_HAS_FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"')
_IS_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")

# What a chunk carries whoever sends it. An event with anything else in it is not ours to take out.
_ENVELOPE = frozenset(
    {
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
        "service_tier",
        "system_fingerprint",
        "obfuscation",  # OpenAI's padding against guessing by length
        "provider",  # OpenRouter
        "timings",  # llama.cpp
    }
)


def _next_end(seen: bytes, start: int) -> int:
    """Where the event ends that is being read at `start`; 0 if it does not end yet."""
    found = _EVENT_END.search(seen, start)
    return found.end() if found else 0


def _next_plain_end(seen: bytes, start: int) -> int:
    """The same where no CR is about, eight times as fast."""
    found = seen.find(b"\n\n", start)
    return found + 2 if found >= 0 else 0


class EventSplitter:
    """Cuts a stream into events, ends included: what comes out and `pending` are all that went in."""

    def __init__(self) -> None:
        self.pending = b""

    def feed(self, data: bytes) -> list[bytes]:
        # An end may lie across the seam, but never begins more than three bytes before it.
        search_from = max(0, len(self.pending) - 3)
        seen = self.pending + data if self.pending else data
        next_end = _next_end if b"\r" in seen else _next_plain_end
        events: list[bytes] = []
        start = 0
        while end := next_end(seen, search_from):
            events.append(seen[start:end])
            start = search_from = end
        self.pending = seen[start:] if start else seen
        if len(self.pending) > MAX_EVENT:
            events.append(self.pending)
            self.pending = b""
        return events


class ChatStream:
    """One streamed answer: `feed` every piece and pass on what it returns, then `flush` once."""

    def __init__(self, *, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._splitter = EventSplitter()
        self.usage: Usage | None = None
        self.finished = False  # has the answer itself said that it is whole?
        self.error: dict[str, Any] | None = None  # what the stream begins with, where it has gone wrong
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        shown = [event for event in self._splitter.feed(data) if not self._unasked(event)]
        # A client can use no part of an event before its end, so holding back the last one delays nothing.
        return b"".join(shown) if self._hide_usage else data

    def flush(self) -> bytes:
        """What is left when the stream has ended, perhaps without its last empty line."""
        rest, self._splitter.pending = self._splitter.pending, b""
        return b"" if self._unasked(rest) or not self._hide_usage else rest

    def _unasked(self, event: bytes) -> bool:
        """Note what the event says; true if it is the usage chunk that the client did not ask for."""
        self.finished = self.finished or _finishes(event)
        if not self._begun:
            self._begin(event)
        if not _HAS_USAGE.search(event):
            return False
        chunk = _chunk_of(event)
        if chunk is None:
            return False
        self.usage = usage_from(chunk) or self.usage
        return (
            self._hide_usage
            and chunk.get("choices") == []
            and isinstance(chunk.get("usage"), dict)
            and chunk.keys() <= _ENVELOPE
        )

    def _begin(self, event: bytes) -> None:
        """A refusal that came too late for a status is the first thing that a stream says."""
        field = b"error:" if event.startswith(b"error:") else b"data:"  # the former is llama.cpp's of old
        chunk = _chunk_of(event, field) if b"error" in event else None
        if chunk is not None and chunk.get("error"):
            self.error = chunk
        elif chunk is not None and event.startswith((b"event: error", b"error:")):
            self.error = {"error": chunk}
        # Comments, which keep a connection alive, are no beginning.
        self._begun = field in event


def _finishes(event: bytes) -> bool:
    return bool(_HAS_FINISH_REASON.search(event) or (b"[DONE]" in event and _IS_DONE.search(event)))


def _chunk_of(event: bytes, field: bytes = b"data:") -> dict[str, Any] | None:
    lines = [line[len(field) :] for line in _LINE_END.split(event) if line.startswith(field)]
    try:
        chunk = orjson.loads(b"\n".join(lines))
    except orjson.JSONDecodeError:
        return None
    return chunk if isinstance(chunk, dict) else None
