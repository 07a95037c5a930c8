"""Shorter messages: where what must be kept does not fit, the middle of the largest texts goes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.fold.history import Turn
from proxy.fold.texts import Part, Path, texts, with_texts

# Of a text so much stays in any case, in tokens: enough to see what it was.
LEAST = 64
LEAST_IN_NEED = 16
NOTE = "\n[… {} characters left out here to fit the context window …]\n"

# Nearly always two or three do. Each takes away a twentieth at least.
_STEPS = 60

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
    """As evenly as can be: the largest texts come down to one size, at which enough is saved. What the
    assistant has said is only cut where results do not give up enough, and what it has called tools with only
    where both do not.

    Where even the least that may stay does not save that much, as much as there is.
    """
    cuts: list[_Text] = []
    for part in Part:
        missing = saving - sum(cut.saved for cut in cuts)
        if missing > 0:
            cuts += _cuts(_texts(turns, part, count), missing, count, least)
    shorter: dict[int, dict[Path, str]] = {}
    for cut in cuts:
        shorter.setdefault(cut.place, {})[cut.path] = cut.text
    messages = {place: with_texts(turns[place].raw, changed) for place, changed in shorter.items()}
    return Shrunk(messages, sum(cut.saved for cut in cuts))


def _texts(turns: Sequence[Turn], part: Part, count: Count) -> list[_Text]:
    """What is no longer than a note of what is gone cannot be made shorter."""
    return [
        _Text(place, each.path, each.text, count(each.text))
        for place, turn in enumerate(turns)
        for each in texts(turn.raw, turn.role, part, longer_than=len(NOTE))
    ]


@dataclass(frozen=True, slots=True)
class _Text:
    place: int  # of the message
    path: Path  # to it, in there
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
        return replace(self, text=text, tokens=tokens, saved=saved) if saved > 0 else None


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
