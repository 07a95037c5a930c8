"""What experience has taught of windows: refusals, silent truncations, and prompts that were taken."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from proxy.recent import Recent
from proxy.store.writing import LateWriter
from proxy.windows.kept import MODELS, Kept
from proxy.windows.overflow import Overflow

# A deployment may be given a larger window, a router may find a larger server: a bound is not for ever.
BOUND_HOLDS = 3600.0
# Below this no server's window lies; a smaller figure in a refusal is about something else.
LEAST = 256


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """No prompt beyond `tokens`, or no prompt and answer together, while it holds."""

    tokens: int
    of_prompt: bool
    until: float


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """The longest prompt that was taken."""

    prompt: int


class Learned(NamedTuple):
    bound: Bound | None = None
    accepted: int = 0


class _Taken(NamedTuple):
    prompt: int
    at: float


class LearnedWindows:
    def __init__(self, upstream: str, store: LateWriter, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Two facts, not one: a worker that has seen a long prompt must not write over another's bound.
        self._bounds = Kept(Bound, upstream, b"bound", store, clock)
        self._accepted = Kept(Accepted, upstream, b"accepted", store, clock)
        self._lately: Recent[str, _Taken] = Recent(MODELS)

    def recalling(self, model: str) -> list[Awaitable[None]]:
        """Questions for what was learned before this process began, or meanwhile by another."""
        return [*self._bounds.recalling(model), *self._accepted.recalling(model)]

    def of(self, model: str) -> Learned:
        accepted = self._accepted.get(model)
        return Learned(self._bound_of(model), accepted.prompt if accepted is not None else 0)

    def refused(self, model: str, too_long: Overflow, counted: int, declared: int | None) -> None:
        """A refusal that names no limit says at least that what was sent is beyond it."""
        if too_long.limit is not None and too_long.limit >= LEAST:
            self._learn(model, too_long.limit, of_prompt=too_long.of_prompt)
            return
        beyond = too_long.asked or counted + (declared or 0)
        # Where a longer prompt was taken just now, this one was refused for what is not counted, such as an
        # attachment: that must not narrow the window for everybody.
        if beyond > max(LEAST, self._taken_lately(model)):
            known = self._bound_of(model)
            self._learn(model, min(known.tokens, beyond - 1) if known else beyond - 1, of_prompt=False)

    def truncated(self, model: str, billed: int) -> None:
        """What was billed is what the server kept of a longer prompt: more than that it will cut again."""
        kept = max(billed, self._taken_lately(model))  # some servers cut off more than they must
        if kept >= LEAST:
            self._learn(model, kept, of_prompt=True)

    def accepted(self, model: str, prompt: int) -> None:
        """A prompt that was taken is not too long, whatever was learned before."""
        if prompt >= self._taken_lately(model):
            self._lately.put(model, _Taken(prompt, self._clock()))
        bound, longest = self.of(model)
        if prompt > longest:
            self._accepted.put(model, Accepted(prompt))
        if bound is not None and prompt > bound.tokens:
            self._bounds.put(model, Bound(prompt, bound.of_prompt, bound.until))

    def _learn(self, model: str, limit: int, *, of_prompt: bool) -> None:
        self._bounds.put(model, Bound(limit, of_prompt, self._clock() + BOUND_HOLDS))
        # What was taken before may have been taken by a server that is gone.
        if self.of(model).accepted > limit:
            self._accepted.put(model, Accepted(limit))
        if self._taken_lately(model) > limit:
            self._lately.put(model, _Taken(limit, self._clock()))

    def _bound_of(self, model: str) -> Bound | None:
        bound = self._bounds.get(model)
        # One that would hold for longer than bounds do was learned by a clock that has been set since.
        return bound if bound is not None and 0 < bound.until - self._clock() <= BOUND_HOLDS else None

    def _taken_lately(self, model: str) -> int:
        taken = self._lately.get(model)
        return taken.prompt if taken is not None and 0 <= self._clock() - taken.at < BOUND_HOLDS else 0
