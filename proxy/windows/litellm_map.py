"""What litellm's model map says, read from its package data: importing litellm takes 5 s and 190 MB."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec
import structlog

from proxy.windows.facts import ModelFacts

log = structlog.get_logger("tailfold")

_FILE = "model_prices_and_context_window_backup.json"
_NO_MODELS = frozenset(["sample_spec", "fallback_generalizations"])
_MODES = frozenset(["chat", "responses", "completion"])

# Makers that serve their own models, whose clients leave the prefix out that litellm puts before the name.
_MAKERS = {
    "gemini": ("gemini-",),
    "xai": ("grok-",),
    "mistral": ("mistral-", "codestral-", "devstral-", "magistral-", "ministral-", "pixtral-"),
    "deepseek": ("deepseek-",),
    "moonshot": ("kimi-", "moonshot-"),
    "zai": ("glm-",),
    "perplexity": ("sonar",),
    "fireworks_ai": ("accounts/fireworks/",),
}

_GOOGLE = frozenset(["gemini", "vertex_ai-language-models"])
_WHOLE_WINDOWS = frozenset([128_000, 131_072, 262_144, 400_000, 1_048_576, 1_050_000])


class _Limits(NamedTuple):
    window: int | None
    max_output: int | None
    excludes_answer: bool | None


class _Entry(msgspec.Struct, gc=False):
    """What is used of an entry; the rest is never built. Any type goes: one odd entry spoils no other."""

    mode: object = None
    litellm_provider: object = None
    max_input_tokens: object = None
    max_output_tokens: object = None
    max_tokens: object = None  # the longest answer, not the window


_decode = msgspec.json.Decoder(dict[str, _Entry]).decode


class LitellmMap:
    """`names` are all of its models, those that do not chat too; facts exist only of those that do."""

    def __init__(self, names: frozenset[str], limits: Mapping[str, _Limits]) -> None:
        self.names = names
        self._limits = limits

    def facts(self, name: str) -> ModelFacts | None:
        """Of a name in lower case; window None where the map does not say."""
        found = self._limits.get(name)
        if found is None:
            return None
        return ModelFacts(found.window, found.excludes_answer, found.max_output)


def known_names() -> frozenset[str]:
    """The names that may become a metric's label: what a client makes up never does."""
    return litellm_map().names


_once = Lock()


def litellm_map() -> LitellmMap:
    """Read at the first call, which takes some 10 ms, whichever thread it comes from."""
    with _once:
        return _read_once()


@cache
def _read_once() -> LitellmMap:
    return read(_installed())


def _installed() -> Path | None:
    found = importlib.util.find_spec("litellm")  # finds without importing
    return Path(found.origin).with_name(_FILE) if found and found.origin else None


def read(file: Path | None) -> LitellmMap:
    """An empty map where there is no file, or not the right one: the other layers then have to do."""
    try:
        if file is None:
            raise FileNotFoundError("litellm is not installed")
        entries = _decode(file.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as failure:
        log.warning("litellm's model map cannot be read, going on without", reason=str(failure))
        return LitellmMap(frozenset(), {})
    return LitellmMap(frozenset(entries) - _NO_MODELS, _limits_of(entries))


def _limits_of(entries: Mapping[str, _Entry]) -> dict[str, _Limits]:
    limits: dict[str, _Limits] = {}
    same: dict[_Limits, _Limits] = {}  # thousands of models share a few hundred limits
    for name, entry in entries.items():
        if entry.mode in _MODES:
            found = _limits(name, entry)
            limits[name.lower()] = same.setdefault(found, found)
    for bare, name in list(_without_maker(limits)):
        limits.setdefault(bare, limits[name])
    return limits


def _without_maker(names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in names:
        maker, _, bare = name.partition("/")
        if bare.startswith(_MAKERS.get(maker, ())):
            yield bare, name


def _limits(name: str, entry: _Entry) -> _Limits:
    window = _tokens(entry.max_input_tokens)
    answer = _tokens(entry.max_output_tokens) or _tokens(entry.max_tokens)
    googles = entry.litellm_provider in _GOOGLE and "gemini-" in name
    excludes = window is not None and (googles or _answer_completes(window, answer))
    return _Limits(window, answer, True if excludes else None)


def _tokens(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _answer_completes(window: int, answer: int | None) -> bool:
    """Is it the prompt's part alone? The map does not say. But 272,000 is nobody's window, while with an
    answer of 128,000 it is just 400,000. An answer of less than a tenth may make up a window by chance.
    """
    if answer is None or window in _WHOLE_WINDOWS or answer >= window:
        return False
    whole = window + answer
    return whole in _WHOLE_WINDOWS and answer * 10 >= whole
