"""A conversation as a summary model is given it: text about others' talk, in which nothing can pass for more.

All marks of ours stand in ⟦ and ⟧, and nothing that was said keeps these two characters. So no content can
end the transcript, begin a message in it or take a note of ours for itself, whatever it spells.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from proxy.fold.history import Turn
from proxy.fold.shrink import without_middle
from proxy.fold.utterance import Utterance, utterance

BEGIN = "⟦transcript⟧"
END = "⟦end of transcript⟧"
LEFT_OUT = " ⟦{} characters left out⟧ "
MESSAGES_LEFT_OUT = "⟦{} messages left out⟧"

# In characters. What a tool returns is mostly long where it matters least; what people write is not.
LONGEST_RESULT = 6_000
LONGEST_ARGUMENTS = 4_000
LONGEST_TEXT = 24_000
_LONGEST_NAME = 80
# A message of which less is told than this has no room for a note of how much is missing.
_NOTED = 200
_GAP = " … "
# And so much of it is told in any case.
_SHORTEST = 24

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
    tokens: int  # of the text, about


def fenced(text: str) -> str:
    return f"{BEGIN}\n{text}\n{END}"


def transcript(turns: Sequence[Turn], first: int = 0) -> str:
    """Numbered from `first`; however long it becomes."""
    return fenced("\n".join(map(str, _entries(turns, first))))


def chunks(turns: Sequence[Turn], most_tokens: int, most_chunks: int, first: int = 0) -> list[Chunk]:
    """The whole history in steps of at most so many tokens, every turn in exactly one of them, in order.

    Sizes go by the turns' own numbers, rather too much than too little. What is too much for so many steps
    is told shorter, the largest messages coming down to one size; where not even the least of each will do,
    a step tells its first messages and its last. A step that is smaller than the least is exceeded.
    """
    most = max(most_tokens - _FENCE, 1)
    whole = list(_entries(turns, first))
    if (size := _size_for(whole, most, most_chunks)) > 0:
        steps = _packed(whole, most, size)
        return [_chunk(turns, step, [each.within(size) for each in whole[step]], first) for step in steps]
    even = -(-len(whole) // most_chunks)
    steps = [slice(start, min(start + even, len(whole))) for start in range(0, len(whole), even)]
    return [_chunk(turns, step, _ends(whole[step], most), first) for step in steps]


def _size_for(entries: Sequence[_Entry], most: int, most_chunks: int) -> int:
    """The largest for a message at which all take no more steps than that; 0 where none is small enough."""

    def is_too_large(size: int) -> bool:
        return len(_packed(entries, most, size)) > most_chunks

    if not is_too_large(most):
        return most
    return bisect_left(range(1, most), True, key=is_too_large)  # smaller ones never take more steps


def _packed(entries: Sequence[_Entry], most: int, size: int) -> list[slice]:
    steps: list[slice] = []
    start = taken = 0
    for place, entry in enumerate(entries):
        tokens = entry.tokens_within(size)
        if taken and taken + tokens > most:
            steps.append(slice(start, place))
            start, taken = place, 0
        taken += tokens
    return [*steps, slice(start, len(entries))] if entries else steps


def _ends(entries: Sequence[_Entry], most: int) -> list[_Entry]:
    least = [entry.within(1) for entry in entries]
    half = (most - _PER_MESSAGE) // 2
    head, tail = (_fitting(each, half) for each in (least, least[::-1]))
    if head + tail >= len(least):
        return least
    note = MESSAGES_LEFT_OUT.format(len(least) - head - tail)
    return [*least[:head], _Entry(note, "", _PER_MESSAGE, _PER_MESSAGE), *least[len(least) - tail :]]


def _fitting(entries: Sequence[_Entry], most: int) -> int:
    """How many of the first."""
    return bisect_right(list(accumulate(entry.tokens for entry in entries)), most)


def _chunk(turns: Sequence[Turn], step: slice, told: Sequence[_Entry], first: int) -> Chunk:
    original = sum(turn.tokens for turn in turns[step])
    numbers = range(first + step.start, first + step.stop)
    return Chunk(numbers, fenced("\n".join(map(str, told))), original, sum(each.tokens for each in told))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One message in the transcript, and what it is taken to cost there."""

    heading: str
    body: str
    tokens: int
    around: int  # so many of them for all but the body

    def __str__(self) -> str:
        return f"{self.heading}\n{self.body}"

    def within(self, most: int) -> _Entry:
        if self.tokens <= most:
            return self
        longest = self._longest(most)
        told = without_middle(self.body, longest, LEFT_OUT if longest >= _NOTED else _GAP)
        return _Entry(self.heading, told, self.tokens_within(most), self.around)

    def tokens_within(self, most: int) -> int:
        if self.tokens <= most:
            return self.tokens
        # Tokens are not spread evenly over a text, so somewhat more than its part of them.
        part = math.ceil(self._longest(most) * self.tokens * 4 / (len(self.body) * 3)) if self.body else 0
        return min(self.tokens, self.around + part)

    def _longest(self, most: int) -> int:
        """The characters of its body that so many tokens are enough for."""
        return max(_SHORTEST, len(self.body) * max(most - self.around, 0) * 3 // (self.tokens * 4))


def _entries(turns: Sequence[Turn], first: int) -> Iterator[_Entry]:
    called: dict[str, str] = {}
    for number, turn in enumerate(turns, first):
        said = utterance(turn.raw)
        called.update((call.id, call.name) for call in said.calls)
        heading = f"⟦{number} {_speaker(turn.role, said, called)}⟧"
        pieces = list(_pieces(said))
        around = _PER_MESSAGE + len(heading) // 3
        tokens = around + _PER_MESSAGE * len(said.calls) + _tokens(turn, pieces)
        yield _Entry(heading, "\n".join(piece.told for piece in pieces), tokens, around)


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
