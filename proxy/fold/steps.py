"""In how many steps a history is told to the model that sums it up, and how much of it in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.fold.history import Turn
from proxy.fold.shrink import without_middle
from proxy.fold.transcript import LEFT_OUT, Chunk, chunks

# One call comes after the other, and somebody may be waiting.
MOST_STEPS = 7

# Of the model's window, for what is said around a transcript.
AROUND = 1_000
_LEAST_CHUNK = 500
# Of its window so much is left free, as its tokens may be smaller than ours; and no more than so much goes to
# the record so far, which another model with a larger window may have written.
_SPARE_SHARE = 16
_RECORD_SHARE = 8


@dataclass(frozen=True, slots=True)
class Steps:
    previous: str  # the record so far, as the first step is told it
    chunks: Sequence[Chunk]


def steps(
    turns: Sequence[Turn], first: int, previous: str, *, window: int, limit: int, count: Callable[[str], int]
) -> Steps:
    """Each takes in half of the window at least, if it has four thousand tokens; `limit` is an answer's."""
    record = _no_longer_than(window // _RECORD_SHARE, previous, count)
    # From the second step on the record is what the one before has written.
    beside = AROUND + limit + max(limit, count(record)) + window // _SPARE_SHARE
    return Steps(record, chunks(turns, max(_LEAST_CHUNK, window - beside), MOST_STEPS, first))


def _no_longer_than(most: int, text: str, count: Callable[[str], int]) -> str:
    if (tokens := count(text)) <= most:
        return text
    return without_middle(text, len(text) * most // tokens, LEFT_OUT)
