"""A conversation as a summary model is given it: text about others' talk, in which nothing can pass for more.

All marks of ours stand in ⟦ and ⟧, and nothing that was said keeps these two characters. So no content can
end the transcript, begin a message in it or take a note of ours for itself, whatever it spells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from proxy.fold.history import Turn
from proxy.fold.shrink import without_middle
from proxy.fold.utterance import Utterance, utterance

BEGIN = "⟦transcript⟧"
END = "⟦end of transcript⟧"
LEFT_OUT = " ⟦{} characters left out⟧ "

# In characters. What a tool returns is mostly long where it matters least; what people write is not.
LONGEST_RESULT = 6_000
LONGEST_ARGUMENTS = 4_000
LONGEST_TEXT = 24_000
_LONGEST_NAME = 80
# So much of a message is told however small the chunk.
_SHORTEST = 120

# In tokens: around a message or call and around them all, however a vocabulary may spell our marks.
_PER_MESSAGE = 16
_FENCE = 40
# A text has hardly ever fewer tokens than this many bytes each: a doubt about a turn's own number.
_BYTES_PER_TOKEN = 5

_SPEAKERS = frozenset({"user", "assistant", "tool", "function", "system", "developer"})


def _table() -> dict[int, str | None]:
    """Characters that act: our own marks and those that look like them, terminal controls, hidden letters."""
    controls = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), *range(0xE0000, 0xE0080), 0xFEFF])
    breaks = dict.fromkeys(map(ord, "\n\r\v\f\x85\u2028\u2029"), "\n")
    directions = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
    marks = {ord("⟦"): "[[", ord("⟧"): "]]", ord("〚"): "[[", ord("〛"): "]]"}
    return {**controls, **directions, **breaks, ord("\t"): "\t", **marks}


_ACTING = _table()
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]{0,32}[ -/]?[@-~]")
# What chat templates make of a role or a turn's end, as it would be a token of its own to some model.
_TEMPLATE = re.compile(
    r"(?<=<)(?=[|\uff5c][^\s<>]{1,64}[|\uff5c]>)"
    r"|(?<=<)(?=/?(?:s|bos|eos|start_of_turn|end_of_turn|unused\d{1,3})>)"
    r"|(?<=<)(?=</?SYS>>)"
    r"|(?<=\[)(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\])"
)
# And what completion models took for a change of speaker.
_SPEAKER = re.compile(
    r"^([ \t]{0,8}(?:\#{1,4}[ ]?)?"
    r"(?:System|Developer|Human|User|Assistant|AI|Tool|Instruction|Response))(?=:)",
    re.MULTILINE,
)


def harmless(text: str) -> str:
    """The same words, none of which a model or its template takes for a mark of its own or of ours."""
    plain = _TERMINAL_CODE.sub("", text.replace("\r\n", "\n")).translate(_ACTING)
    return _SPEAKER.sub(r"\1 ", _TEMPLATE.sub(" ", plain))


@dataclass(frozen=True, slots=True)
class Chunk:
    """So much of a history as goes into one call of the summary model."""

    numbers: range  # of its turns, as they are given
    text: str  # their transcript, fenced
    original_tokens: int  # of its turns


def fenced(text: str) -> str:
    return f"{BEGIN}\n{text}\n{END}"


def transcript(turns: Sequence[Turn], first: int = 0) -> str:
    """Numbered from `first`; however long it becomes."""
    return fenced("\n".join(map(str, _entries(turns, first))))


def chunks(turns: Sequence[Turn], most_tokens: int, first: int = 0) -> list[Chunk]:
    """The whole history in steps of at most so many tokens, every turn in exactly one of them, in order.

    Sizes go by the turns' own numbers, rather too much than too little. A message that is larger than a step
    is shortened; a step that is smaller than anything that can be told of one is exceeded.
    """
    most = max(most_tokens - _FENCE, 1)
    found: list[Chunk] = []
    pending: list[_Entry] = []
    size = start = 0
    for number, whole in enumerate(_entries(turns, first)):
        entry = whole.within(most)
        if pending and size + entry.tokens > most:
            found.append(_chunk(turns, pending, start, first))
            pending, size, start = [], 0, number
        pending.append(entry)
        size += entry.tokens
    return [*found, _chunk(turns, pending, start, first)] if pending else found


def _chunk(turns: Sequence[Turn], entries: Sequence[_Entry], start: int, first: int) -> Chunk:
    end = start + len(entries)
    original = sum(turn.tokens for turn in turns[start:end])
    return Chunk(range(first + start, first + end), fenced("\n".join(map(str, entries))), original)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One message in the transcript, and what it is taken to cost there."""

    heading: str
    body: str
    tokens: int

    def __str__(self) -> str:
        return f"{self.heading}\n{self.body}"

    def within(self, most: int) -> _Entry:
        if self.tokens <= most:
            return self
        # Tokens are not spread evenly over a text, so somewhat less of it than the numbers say.
        longest = max(_SHORTEST, len(self.body) * max(most - _PER_MESSAGE, 0) * 3 // (self.tokens * 4))
        return _Entry(self.heading, without_middle(self.body, longest, LEFT_OUT), most)


def _entries(turns: Sequence[Turn], first: int) -> Iterator[_Entry]:
    called: dict[str, str] = {}
    for number, turn in enumerate(turns, first):
        said = utterance(turn.raw)
        called.update((call.id, call.name) for call in said.calls)
        heading = f"⟦{number} {_speaker(turn.role, said, called)}⟧"
        pieces = list(_pieces(said))
        tokens = _PER_MESSAGE * (1 + len(said.calls)) + len(heading) // 3 + _tokens(turn, pieces)
        yield _Entry(heading, "\n".join(piece.told for piece in pieces), tokens)


def _speaker(role: str, said: Utterance, called: dict[str, str]) -> str:
    if said.is_result:
        return f"result of {_name(called.get(said.answers) or said.name) or 'a call'}"
    speaker = role if role in _SPEAKERS else "somebody"
    return f"{speaker} {_name(said.name)}".rstrip()


def _name(text: str) -> str:
    return re.sub(r"[^\w.:/-]+", "_", text[:_LONGEST_NAME])


@dataclass(frozen=True, slots=True)
class _Piece:
    told: str
    whole: int  # characters before it was shortened
    grown: int  # characters that were put in to make it harmless


def _pieces(said: Utterance) -> Iterator[_Piece]:
    if said.text:
        yield _piece(said.text, LONGEST_RESULT if said.is_result else LONGEST_TEXT)
    for call in said.calls:
        piece = _piece(call.arguments, LONGEST_ARGUMENTS)
        yield replace(piece, told=f"⟦call⟧ {_name(call.name)}({piece.told})")


def _piece(text: str, longest: int) -> _Piece:
    plain = harmless(text)
    return _Piece(without_middle(plain, longest, LEFT_OUT), len(plain), max(0, len(plain) - len(text)))


def _tokens(turn: Turn, pieces: Sequence[_Piece]) -> int:
    """The turn's own number, with what was put in and without what is not told."""
    told = "".join(piece.told for piece in pieces)
    whole = sum(piece.whole for piece in pieces)
    share = min(1.0, 1.25 * len(told) / whole) if whole else 1.0
    grown = sum(piece.grown for piece in pieces)
    return max(math.ceil((turn.tokens + grown) * share), len(told.encode()) // _BYTES_PER_TOKEN)
