"""Whose word on a model's window counts: the user's, the upstream's, the maps', and experience above all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from proxy.budget import Window
from proxy.windows.facts import KnownModel, Origin
from proxy.windows.learned import Learned, LearnedWindows
from proxy.windows.said import Said

DEFAULT_WINDOW = 4096


class Models(Protocol):
    def look_up(self, name: str) -> KnownModel: ...


class UpstreamsWord(Protocol):
    def said_of(self, model: str) -> Said | None: ...

    async def recall(self, model: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Resolved:
    window: Window
    origin: Origin
    known: KnownModel
    learned: bool = False  # did experience change what `origin` says?


class Windows:
    def __init__(self, models: Models, upstream: UpstreamsWord, learned: LearnedWindows) -> None:
        self._models = models
        self._upstream = upstream
        self.learned = learned

    async def recall(self, model: str) -> None:
        """What was said and learned before this process began: the store is asked once per model."""
        await self._upstream.recall(model)
        await self.learned.recall(model)

    def of(self, model: str) -> Resolved:
        known = self._models.look_up(model)
        window, origin = _said(known, self._upstream.said_of(model))
        experienced = _experienced(window, self.learned.of(model))
        return Resolved(experienced, origin, known, learned=experienced != window)


def _said(known: KnownModel, said: Said | None) -> tuple[Window, Origin]:
    facts, origin = known.facts, known.origins.get("window", Origin.DEFAULT)
    said_output = said.max_output if said is not None else None
    if origin is Origin.SETTING or said is None or said.window is None:
        if facts.window is None:
            return Window(DEFAULT_WINDOW, said_output or facts.max_output, assumed=True), Origin.DEFAULT
        return Window(facts.window, facts.max_output, bool(facts.excludes_answer)), origin
    return Window(said.window, said_output or facts.max_output, said.excludes_answer), Origin.UPSTREAM


def _experienced(window: Window, learned: Learned) -> Window:
    """A bound lowers any word; a prompt that was taken raises only what nobody has said."""
    if window.assumed and learned.accepted > window.tokens:
        window = replace(window, tokens=learned.accepted)
    if learned.bound is None:
        return window
    if window.assumed:  # now somebody has said so
        return Window(learned.bound, window.max_output, learned.of_prompt)
    if learned.bound >= window.tokens:
        return window
    if not learned.of_prompt or window.excludes_answer:
        return replace(window, tokens=learned.bound)
    # The rest of the window is left for the answer, so that both limits hold.
    return Window(learned.bound, window.tokens - learned.bound, excludes_answer=True)
