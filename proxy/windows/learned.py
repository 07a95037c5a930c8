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
# And below this none of a server that cuts prompts: 2,048 is the smallest that is usual, half of it is kept.
_LEAST_KEPT = 1000
_GROWN = 1.1


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """No prompt beyond `tokens`, or no prompt and answer together, while it holds."""

    tokens: int
    of_prompt: bool
    until: float
    by_bill: bool = False  # not by a refusal
    counts_answer: bool = False  # one was refused for the answer that was declared beside it


class Accepted(msgspec.Struct, frozen=True, array_like=True):
    """The longest prompt that was taken."""

    prompt: int


class Learned(NamedTuple):
    bound: Bound | None = None
    accepted: int = 0


class _Taken(NamedTuple):
    prompt: int
    at: float


class _Cut(NamedTuple):
    """An answer that was billed for less than was sent."""

    sent: int
    billed: int
    at: float


class LearnedWindows:
    """Each caller's own experience: what one provokes, by mishap or by intent, is nothing to the others."""

    def __init__(self, upstream: str, store: LateWriter, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # Two facts, not one: a worker that has seen a long prompt must not write over another's bound.
        self._bounds = Kept(Bound, upstream, b"bound", store, clock)
        self._accepted = Kept(Accepted, upstream, b"accepted", store, clock)
        self._lately: Recent[tuple[bytes, str], _Taken] = Recent(MODELS)
        self._cuts: Recent[tuple[bytes, str], _Cut] = Recent(MODELS)
        self._disbelieved: Recent[tuple[bytes, str], float] = Recent(MODELS)  # bills, until when

    def recalling(self, tenant: bytes, model: str) -> list[Awaitable[None]]:
        """Questions for what was learned before this process began, or meanwhile by another."""
        return [*self._bounds.recalling(model, tenant), *self._accepted.recalling(model, tenant)]

    def of(self, tenant: bytes, model: str) -> Learned:
        accepted = self._accepted.get(model, tenant)
        return Learned(self._bound_of(tenant, model), accepted.prompt if accepted is not None else 0)

    def refused(
        self, tenant: bytes, model: str, too_long: Overflow, counted: int, declared: int | None
    ) -> None:
        """A refusal that names no limit says at least that what was sent is beyond it."""
        for_both = too_long.counts_answer(counted, declared)
        if too_long.limit is not None and too_long.limit >= LEAST:
            self._learn(tenant, model, too_long.limit, of_prompt=too_long.of_prompt, counts_answer=for_both)
            return
        beyond = too_long.asked or counted + (declared or 0)
        # Where a longer prompt was taken just now, this one was refused for what is not counted, such as an
        # attachment: that must not narrow the window for all that follow.
        if beyond > max(LEAST, self._taken_lately(tenant, model)):
            known = self._bound_of(tenant, model)
            limit = min(known.tokens, beyond - 1) if known else beyond - 1
            self._learn(tenant, model, limit, of_prompt=False, counts_answer=for_both)

    def truncated(self, tenant: bytes, model: str, sent: int, billed: int, *, somebody_says: bool) -> None:
        """What was billed is what the server kept of a longer prompt: more than that it will cut again.

        A bill may be low for other reasons, and a window that is wrongly taken for small costs conversations
        their memory. So a window that `somebody_says` is doubted only when a longer prompt is billed for no
        more than a shorter one was, and bills are no longer believed when one is low within a bound that they
        have taught.
        """
        name, now = (tenant, model), self._clock()
        if now < (self._disbelieved.get(name) or 0.0):
            return
        bound = self._bound_of(tenant, model)
        if bound is not None and sent <= bound.tokens:
            if bound.by_bill:
                self._disbelieved.put(name, now + BOUND_HOLDS)
                self._bounds.put(model, msgspec.structs.replace(bound, until=now), tenant)
            return
        kept = max(billed, self._taken_lately(tenant, model))  # some servers cut off more than they must
        if kept < _LEAST_KEPT:
            return
        before, cut = self._cuts.get(name), _Cut(sent, billed, now)
        is_recent = before is not None and 0 <= now - before.at < BOUND_HOLDS
        if not somebody_says or (before is not None and is_recent and _is_full(before, cut)):
            self._learn(tenant, model, kept, of_prompt=True, by_bill=True)
        elif before is None or not is_recent or sent < before.sent:
            self._cuts.put(name, cut)

    def accepted(self, tenant: bytes, model: str, prompt: int) -> None:
        """A prompt that was taken is not too long, whatever was learned before."""
        if prompt >= self._taken_lately(tenant, model):
            self._lately.put((tenant, model), _Taken(prompt, self._clock()))
        bound, longest = self.of(tenant, model)
        if prompt > longest:
            self._accepted.put(model, Accepted(prompt), tenant)
        if bound is not None and prompt > bound.tokens:
            self._bounds.put(model, msgspec.structs.replace(bound, tokens=prompt), tenant)

    def _learn(
        self,
        tenant: bytes,
        model: str,
        limit: int,
        *,
        of_prompt: bool,
        by_bill: bool = False,
        counts_answer: bool = False,
    ) -> None:
        known = self._bound_of(tenant, model)
        counts_answer = counts_answer or (known is not None and known.counts_answer)
        until = self._clock() + BOUND_HOLDS
        self._bounds.put(model, Bound(limit, of_prompt, until, by_bill, counts_answer), tenant)
        # What was taken before may have been taken by a server that is gone.
        if self.of(tenant, model).accepted > limit:
            self._accepted.put(model, Accepted(limit), tenant)
        if self._taken_lately(tenant, model) > limit:
            self._lately.put((tenant, model), _Taken(limit, self._clock()))

    def _bound_of(self, tenant: bytes, model: str) -> Bound | None:
        bound = self._bounds.get(model, tenant)
        # One that would hold for longer than bounds do was learned by a clock that has been set since.
        return bound if bound is not None and 0 < bound.until - self._clock() <= BOUND_HOLDS else None

    def _taken_lately(self, tenant: bytes, model: str) -> int:
        taken = self._lately.get((tenant, model))
        return taken.prompt if taken is not None and 0 <= self._clock() - taken.at < BOUND_HOLDS else 0


def _is_full(before: _Cut, cut: _Cut) -> bool:
    """The prompt has grown, and what was kept of it has not grown with it."""
    grown = cut.sent / before.sent
    return grown >= _GROWN and cut.billed / before.billed <= 1 + (grown - 1) / 2
