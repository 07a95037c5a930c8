"""How much a prompt may hold, and from which size on it is folded. Pure arithmetic on a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# Undeclared answers: what is reserved for them when folding early, and what they need at the very least.
_ANSWER_SHARE = 1 / 4
_LEAST_ANSWER_SHARE = 1 / 8
_LEAST_ANSWER = 1024
# A declared answer may ask for nearly all of the window, or for more. Where it leaves the prompt less than is
# reserved for an answer of which nothing was said, nobody means it as a length: the upstream will cap it, or
# refuse it.
_LEAST_LEFT_SHARE = 1 / 4
# Where the upstream has refused a prompt for the answer beside it, shorter prompts are answered; but one as
# short as this is not worth a conversation.
_LEAST_ROOM_SHARE = 1 / 16


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window as the budget sees it."""

    tokens: int
    max_output: int | None = None
    excludes_answer: bool = False  # `tokens` is for the prompt alone, the answer has its own beside it
    assumed: bool = False  # nobody has said so: it starts no fold
    counts_answer: bool = False  # the upstream has refused a prompt for the answer declared beside it


@dataclass(frozen=True, slots=True)
class Policy:
    threshold: float = 0.95
    soft_ratio: float = 0.8
    margin: float = 0.05


class Size(Protocol):
    """A count, and how much more it may be."""

    @property
    def tokens(self) -> int: ...

    @property
    def at_most(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Budget:
    window: int
    room: int  # for the prompt
    hard: int  # past this it is folded …
    soft: int  # … and past this the fold is prepared
    largest: int  # past this it would be refused
    may_fold: bool
    reserved: int | None = None  # for the answer that was declared, where it is taken at its word

    def past_hard(self, size: Size) -> bool:
        """By what it may be at most: the less is known of a prompt, the earlier it is folded."""
        return self.may_fold and size.at_most > self.hard

    def past_soft(self, size: Size) -> bool:
        return self.may_fold and size.at_most > self.soft

    def fits(self, size: Size) -> bool:
        """By the count itself: what only may be too large is sent, and a refusal says how large it was."""
        return size.tokens <= self.largest


def budget(window: Window, declared: int | None, policy: Policy) -> Budget:
    """`declared` is how long an answer the request asks for at most."""
    reserved = _reserved(window, declared)
    least = max(1, int(window.tokens * _LEAST_ROOM_SHARE))
    largest = window.tokens - _beside(window, _least_answer(window) if reserved is None else reserved)
    margin = int(window.tokens * policy.margin)
    expected = _expected_answer(window) if reserved is None else reserved
    room = max(least, window.tokens - _beside(window, expected) - margin)
    hard = max(1, int(policy.threshold * room))
    soft = max(1, int(policy.soft_ratio * hard))
    return Budget(window.tokens, room, hard, soft, largest, not window.assumed, reserved)


def _reserved(window: Window, declared: int | None) -> int | None:
    """For a declared answer; None where it counts as not declared."""
    if declared is None:
        return None
    # No model answers at more than its greatest length, whatever it is asked for.
    answer = declared if window.counts_answer else _no_longer_than(window.max_output, declared)
    share = _LEAST_ROOM_SHARE if window.counts_answer else _LEAST_LEFT_SHARE
    return answer if window.tokens - _beside(window, answer) >= share * window.tokens else None


def _beside(window: Window, answer: int) -> int:
    """What an answer takes of the window."""
    if not window.excludes_answer:
        return answer
    # It has a place of its own; only what it asks for beyond that is taken from the prompt's.
    return max(0, answer - window.max_output) if window.max_output is not None else 0


def _expected_answer(window: Window) -> int:
    return _no_longer_than(window.max_output, int(window.tokens * _ANSWER_SHARE))


def _least_answer(window: Window) -> int:
    return _no_longer_than(window.max_output, min(int(window.tokens * _LEAST_ANSWER_SHARE), _LEAST_ANSWER))


def _no_longer_than(max_output: int | None, answer: int) -> int:
    return answer if max_output is None else min(max_output, answer)
