"""How much a prompt may hold, and from which size on it is folded. Pure arithmetic on a window."""

from __future__ import annotations

from dataclasses import dataclass

# Undeclared answers: what is reserved for them when folding early, and what they need at the very least.
_ANSWER_SHARE = 1 / 4
_LEAST_ANSWER_SHARE = 1 / 8
_LEAST_ANSWER = 1024
# A declared answer may ask for the whole window, which is the upstream's to refuse: a prompt keeps this much.
_LEAST_ROOM_SHARE = 1 / 16


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window as the budget sees it."""

    tokens: int
    max_output: int | None = None
    excludes_answer: bool = False  # `tokens` is for the prompt alone, the answer has its own beside it
    assumed: bool = False  # nobody has said so: it starts no fold


@dataclass(frozen=True, slots=True)
class Policy:
    threshold: float = 0.95
    soft_ratio: float = 0.8
    margin: float = 0.05


@dataclass(frozen=True, slots=True)
class Budget:
    window: int
    room: int  # for the prompt
    hard: int  # past this it is folded …
    soft: int  # … and past this the fold is prepared
    largest: int  # past this it would be refused
    may_fold: bool

    def fits(self, prompt: int) -> bool:
        return prompt <= self.largest

    def past_hard(self, prompt: int) -> bool:
        return self.may_fold and prompt > self.hard

    def past_soft(self, prompt: int) -> bool:
        return self.may_fold and prompt > self.soft


def budget(window: Window, declared: int | None, policy: Policy) -> Budget:
    """`declared` is how long an answer the request asks for at most."""
    room = max(_room(window, declared, policy.margin), int(window.tokens * _LEAST_ROOM_SHARE), 1)
    hard = max(1, int(policy.threshold * room))
    soft = max(1, int(policy.soft_ratio * hard))
    return Budget(window.tokens, room, hard, soft, _largest(window, declared), not window.assumed)


def _room(window: Window, declared: int | None, margin_share: float) -> int:
    margin = int(window.tokens * margin_share)
    answer = declared if declared is not None else _expected_answer(window)
    if not window.excludes_answer:
        return window.tokens - answer - margin
    # The answer has a place of its own; only what it asks for beyond that is taken from the prompt's.
    beyond = max(0, answer - (window.max_output or answer))
    return window.tokens - beyond - margin


def _expected_answer(window: Window) -> int:
    most = int(window.tokens * _ANSWER_SHARE)
    return most if window.max_output is None else min(window.max_output, most)


def _largest(window: Window, declared: int | None) -> int:
    if window.excludes_answer:
        return window.tokens
    least = min(int(window.tokens * _LEAST_ANSWER_SHARE), _LEAST_ANSWER)
    return max(0, window.tokens - (declared if declared is not None else least))
