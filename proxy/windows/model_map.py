"""What is known of a model by its name, from three layers: the user's, the shipped map and litellm's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from proxy.config_files import config_dir
from proxy.windows.entries import facts_from, facts_in, said_by_the_user
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.litellm_map import LitellmMap, litellm_map
from proxy.windows.names import LONGEST, names_for

__all__ = ["ModelMap", "facts_from", "said_by_the_user"]

_REMEMBERED = 1024
_NO_LITELLM = LitellmMap(frozenset(), {})
_FIELDS = tuple(field.name for field in fields(ModelFacts))

Said = tuple[ModelFacts, Origin]


class ModelMap:
    """Until `load` has been called, only the user's own layer answers."""

    def __init__(self, user: Mapping[str, ModelFacts], shipped: Path | None = None) -> None:
        self._user = _Layer(user)
        self._shipped_file = shipped or config_dir() / "models.yaml"
        self._loading = Lock()
        self._loaded = False
        self._use(_Layers(self._user, _Layer({}), _NO_LITELLM))

    def load(self) -> None:
        """Reads files, some 20 ms: meant for a thread. The first call loads, the others wait for it."""
        with self._loading:
            if not self._loaded:
                self._use(_Layers(self._user, _Layer(facts_in(self._shipped_file)), litellm_map()))
                self._loaded = True

    def look_up(self, name: str) -> KnownModel:
        return self._known(name) if len(name) <= LONGEST else KnownModel()

    def names(self) -> list[str]:
        """Names and patterns of the user's layer and of the shipped map, each in its own order."""
        return list(dict.fromkeys([*self._layers.user.names, *self._layers.shipped.names]))

    def _use(self, layers: _Layers) -> None:
        self._layers = layers
        # What is remembered goes with the layers that said it: a slow answer of old ones cannot get into it.
        self._known = lru_cache(_REMEMBERED)(layers.look_up)


class _Layer:
    """Entries by name and by pattern, in whatever case they were written."""

    def __init__(self, entries: Mapping[str, ModelFacts]) -> None:
        self.names = tuple(entries)
        self._exact = {name.lower(): facts for name, facts in entries.items() if not is_pattern(name)}
        patterns = sorted((name for name in entries if is_pattern(name)), key=len, reverse=True)
        self._patterns = [(re.compile(translate(name.lower())), entries[name]) for name in patterns]

    def exact(self, name: str) -> ModelFacts | None:
        return self._exact.get(name)

    def by_pattern(self, names: Iterable[str]) -> Iterator[ModelFacts]:
        """The longest pattern first: it says most."""
        for pattern, facts in self._patterns:
            if any(map(pattern.match, names)):
                yield facts


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


class _Layers:
    def __init__(self, user: _Layer, shipped: _Layer, litellm: LitellmMap) -> None:
        self.user = user
        self.shipped = shipped
        self._litellm = litellm

    def look_up(self, name: str) -> KnownModel:
        return _merged(self._said_of(names_for(name)))

    def _said_of(self, names: tuple[str, ...]) -> Iterator[Said]:
        """Everything that is said, what counts most first."""
        yield from _by(Origin.SETTING, map(self.user.exact, names))
        yield from _by(Origin.SETTING, self.user.by_pattern(names))
        # The exact name counts more than whose word it is: gpt-4o-2024-05-13 has a shorter answer than
        # gpt-4o, and a host may cut the window. Of the same name the shipped map knows better.
        for name in names:
            yield from _by(Origin.MAP, [self.shipped.exact(name)])
            yield from _by(Origin.LITELLM, [self._litellm.facts(name)])
        yield from _by(Origin.MAP, self.shipped.by_pattern(names))


def _by(origin: Origin, told: Iterable[ModelFacts | None]) -> Iterator[Said]:
    return ((facts, origin) for facts in told if facts is not None)


def _merged(said: Iterable[Said]) -> KnownModel:
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for facts, origin in said:
        for field in _adding(facts, values):
            values[field] = getattr(facts, field)
            origins[field] = origin
    return KnownModel(ModelFacts(**values), origins)


def _adding(facts: ModelFacts, known: Mapping[str, object]) -> list[str]:
    """The fields that are told here first. What a window excludes is said by whoever said the window."""
    withheld = facts.window is None or "window" in known
    return [
        field
        for field in _FIELDS
        if getattr(facts, field) is not None
        and field not in known
        and not (field == "excludes_answer" and withheld)
    ]
