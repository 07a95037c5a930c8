"""Whose word on a model's window counts: the user's, the upstream's, the maps', and experience above all."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.budget import Window
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.learned import Bound, Learned, LearnedWindows
from proxy.windows.said import Said

DEFAULT_WINDOW = 4096


class Models(Protocol):
    def look_up(self, name: str) -> KnownModel: ...


class UpstreamsWord(Protocol):
    def said_of(self, model: str) -> Said | None: ...

    def recalling(self, model: str) -> list[Awaitable[None]]: ...


class Silence:
    """An upstream that is not to be asked."""

    def said_of(self, _model: str) -> Said | None:
        return None

    def recalling(self, _model: str) -> list[Awaitable[None]]:
        """There is nothing to remember."""
        return []


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

    def recalling(self, tenant: bytes, model: str) -> list[Awaitable[None]]:
        """Questions for what was said and learned before this process began, or by another: asked seldom."""
        return [*self._upstream.recalling(model), *self.learned.recalling(tenant, model)]

    def of(self, tenant: bytes, model: str) -> Resolved:
        known = self._models.look_up(model)
        window, origin = _told(known, self._upstream.said_of(model))
        experienced = _experienced(window, self.learned.of(tenant, model))
        return Resolved(experienced, origin, known, learned=experienced != window)


def _told(known: KnownModel, said: Said | None) -> tuple[Window, Origin]:
    facts, origin = known.facts, known.origins.get("window", Origin.DEFAULT)
    max_output = _max_output(known, said)
    if said is not None and origin is not Origin.SETTING:
        return Window(said.window, max_output, _excludes_answer(said, facts)), Origin.UPSTREAM
    if facts.window is None:
        return Window(DEFAULT_WINDOW, max_output, assumed=True), Origin.DEFAULT
    return Window(facts.window, max_output, bool(facts.excludes_answer)), origin


def _max_output(known: KnownModel, said: Said | None) -> int | None:
    if said is None or known.origins.get("max_output") is Origin.SETTING:
        return known.facts.max_output
    return said.max_output or known.facts.max_output


def _excludes_answer(said: Said, facts: ModelFacts) -> bool:
    """Where the upstream leaves it open, the maps know what kind of number it is, if it is theirs."""
    if said.excludes_answer is not None:
        return said.excludes_answer
    return bool(facts.excludes_answer) and facts.window == said.window


def _experienced(window: Window, learned: Learned) -> Window:
    """A bound lowers any word; a prompt that was taken raises only what nobody has said."""
    bound = learned.bound
    if bound is None:
        return replace(window, tokens=max(window.tokens, learned.accepted)) if window.assumed else window
    # Of an assumed window, now somebody has said it.
    told = Window(bound.tokens, window.max_output, bound.of_prompt)
    return replace(told if window.assumed else _lowered(window, bound), counts_answer=bound.counts_answer)


def _lowered(window: Window, bound: Bound) -> Window:
    if bound.of_prompt == window.excludes_answer:
        return replace(window, tokens=min(window.tokens, bound.tokens))
    # One limit is for the prompt, the other for prompt and answer together: both hold.
    prompt, both = (bound.tokens, window.tokens) if bound.of_prompt else (window.tokens, bound.tokens)
    rest = both - prompt
    if rest < both // 4:  # what an answer may need: as good as one limit, the lower
        return Window(min(prompt, both), window.max_output)
    return Window(prompt, rest if window.max_output is None else min(window.max_output, rest), True)
