"""What experience has taught of windows: refusals, silent truncations, and prompts that were taken."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from proxy.recent import Recent
from proxy.store.writing import LateWriter
from proxy.windows.kept import Kept
from proxy.windows.overflow import Overflow

MODELS = 1024
# A deployment may be given a larger window, a router may find a larger server: a bound is not for ever.
BOUND_HOLDS = 3600.0
# Below this no server's window lies; a smaller figure in a refusal is about something else.
_LEAST = 256


class Learned(msgspec.Struct, frozen=True, array_like=True):
    """`bound` holds until `until`; `accepted` is the longest prompt that was ever taken."""

    bound: int | None = None
    of_prompt: bool = False
    until: float = 0.0
    accepted: int = 0


_NOTHING = Learned()


class LearnedWindows:
    def __init__(self, upstream: str, store: LateWriter, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kept = Kept(Learned, upstream, b"learned", store)
        self._known: Recent[str, Learned] = Recent(MODELS)

    async def recall(self, model: str) -> None:
        """What was learned before this process began; asked of the store once per model."""
        if self._known.get(model) is None:
            stored = await self._kept.read(model)
            # Somebody may have learned while the store was being asked.
            self._known.put(model, self._known.get(model) or stored or _NOTHING)

    def of(self, model: str) -> Learned:
        learned = self._known.get(model) or _NOTHING
        if learned.bound is not None and learned.until <= self._clock():
            return Learned(accepted=learned.accepted)
        return learned

    def refused(self, model: str, too_long: Overflow, counted: int, declared: int | None) -> None:
        """A refusal that names no limit says at least that what was sent is beyond it."""
        sent = too_long.asked or counted + (0 if too_long.of_prompt else declared or 0)
        limit = too_long.limit if too_long.limit is not None and too_long.limit >= _LEAST else sent - 1
        self._bound(model, max(_LEAST, limit), of_prompt=too_long.of_prompt)

    def truncated(self, model: str, billed: int) -> None:
        """What was billed is what the server kept of a longer prompt: more than that it will cut again."""
        self._bound(model, max(_LEAST, billed), of_prompt=True)

    def accepted(self, model: str, prompt: int) -> None:
        """A prompt that was taken is not too long, whatever was learned before."""
        learned = self.of(model)
        if prompt <= learned.accepted:
            return
        bound = None if learned.bound is None else max(learned.bound, prompt)
        self._learn(model, Learned(bound, learned.of_prompt, learned.until, prompt))

    def _bound(self, model: str, limit: int, *, of_prompt: bool) -> None:
        # What was accepted before the refusal may have been accepted by a server that is gone.
        accepted = min(limit, self.of(model).accepted)
        self._learn(model, Learned(limit, of_prompt, self._clock() + BOUND_HOLDS, accepted))

    def _learn(self, model: str, learned: Learned) -> None:
        self._known.put(model, learned)
        self._kept.write(model, learned)
