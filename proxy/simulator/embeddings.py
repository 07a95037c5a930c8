"""Embeddings without meaning: the same text has the same unit vector."""

from __future__ import annotations

import base64
import hashlib
import math
import sys
from array import array
from collections.abc import Callable
from typing import Any

import orjson

from proxy.simulator.answers import Answer, ApiError, json_answer
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.tokens import Counter
from proxy.simulator.validate import wrong_type

DEFAULT_DIMENSIONS = 1536
LARGE_DIMENSIONS = 3072


class Embeddings:
    def __init__(self, counter: Counter, tokenizer_factor: float) -> None:
        self._counter = counter
        self._factor = tokenizer_factor

    def answer(self, received: ReceivedRequest) -> Answer:
        value = received.json()
        if not isinstance(value, dict):
            raise ApiError("We expected a JSON object as the body of your request.")
        model = str(value.get("model"))
        inputs = _inputs(value.get("input"))
        encode = _encoding(value.get("encoding_format", "float"))
        dimensions = _dimensions(value, model)
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector(item, dimensions))}
            for index, item in enumerate(inputs)
        ]
        tokens = round(sum(map(self._tokens, inputs)) * self._factor)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_answer({"object": "list", "data": data, "model": model, "usage": usage})

    def _tokens(self, item: str | list[int]) -> int:
        return self._counter.count(item) if isinstance(item, str) else len(item)


def _inputs(given: Any) -> list[str | list[int]]:
    """One text, one text as tokens, or a list of either."""
    items = [given] if isinstance(given, str) or _is_tokens(given) else given
    if (
        not isinstance(items, list)
        or not items
        or not all(isinstance(i, str) or _is_tokens(i) for i in items)
    ):
        raise wrong_type("input", "a text, tokens, or a list of either")
    return items


def _is_tokens(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(token, int) for token in item)


def _dimensions(value: dict[str, Any], model: str) -> int:
    wanted = value.get("dimensions")
    if wanted is None:
        return LARGE_DIMENSIONS if model.endswith("large") else DEFAULT_DIMENSIONS
    if not isinstance(wanted, int) or not 0 < wanted <= LARGE_DIMENSIONS:
        raise wrong_type("dimensions", f"an integer from 1 to {LARGE_DIMENSIONS}")
    return wanted


def vector(item: str | list[int], dimensions: int) -> array[float]:
    noise = array("h", hashlib.shake_256(orjson.dumps(item)).digest(2 * dimensions))
    length = math.sqrt(sum(x * x for x in noise)) or 1.0
    return array("f", (x / length for x in noise))


def _as_base64(embedding: array[float]) -> str:
    if sys.byteorder == "big":
        embedding.byteswap()
    return base64.b64encode(embedding.tobytes()).decode()


def _encoding(name: Any) -> Callable[[array[float]], Any]:
    match name:
        case "float" | None:
            return list
        case "base64":
            return _as_base64
        case _:
            raise wrong_type("encoding_format", "'float' or 'base64'")
