"""Which model names are known, so that what a client makes up never becomes a metric label."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import orjson

from proxy.metrics import OTHER

_MAP = "model_prices_and_context_window_backup.json"


@cache
def known_models() -> frozenset[str]:
    """The names in litellm's model map, read without importing litellm (5 s and 190 MB)."""
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        return frozenset()
    names: dict[str, object] = orjson.loads(Path(found.origin).with_name(_MAP).read_bytes())
    return frozenset(names) - {"sample_spec", "fallback_generalizations"}


def label_for(model: str | None) -> str:
    return model if model is not None and model in known_models() else OTHER
