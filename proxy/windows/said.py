"""What servers say of their models' windows, each in its own words. Pure: parsed answers in, a window out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_MOST = 2**40


class Said(msgspec.Struct, frozen=True, array_like=True):
    window: int
    max_output: int | None = None
    excludes_answer: bool = False


def in_model_list(answer: object, model: str) -> Said | None:
    """`/v1/models`: vLLM and SGLang, llama.cpp, OpenRouter, and others that add a field of their own."""
    entries = list(_entries(answer))
    named = [entry for entry in entries if entry.get("id") == model]
    if not named and len(entries) == 1 and _in_meta(entries[0]) is not None:
        named = entries  # llama.cpp has one model, and answers for it under any name
    return next((said for entry in named if (said := _in_entry(entry)) is not None), None)


def _in_entry(entry: dict[str, Any]) -> Said | None:
    serving = _object(entry.get("top_provider"))  # OpenRouter's: who answers may have less than the model
    keys = ("max_model_len", "context_length", "context_window", "max_context_length")
    windows = [
        number
        for number in (
            *(_tokens(entry.get(key)) for key in keys),
            _in_meta(entry),
            _tokens(serving.get("context_length")),
        )
        if number is not None
    ]
    if not windows:
        return None
    return Said(min(windows), _tokens(serving.get("max_completion_tokens")))


def _in_meta(entry: dict[str, Any]) -> int | None:
    """llama.cpp's `n_ctx`; its `n_ctx_train` is what the model could do, not what the server does."""
    return _tokens(_object(entry.get("meta")).get("n_ctx"))


def in_props(answer: object, _model: str) -> Said | None:
    """llama.cpp's `/props`."""
    return _said(_object(_object(answer).get("default_generation_settings")).get("n_ctx"))


def in_running_models(answer: object, model: str) -> Said | None:
    """Ollama's `/api/ps`: the context that the model was loaded with."""
    for entry in _objects(_object(answer).get("models")):
        if _ollama_name(model) in map(_ollama_name, (entry.get("name"), entry.get("model"))):
            return _said(entry.get("context_length"))
    return None


_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,12})\s*$", re.MULTILINE)


def in_model_card(answer: object, _model: str) -> Said | None:
    """Ollama's `/api/show`: only what its parameters set. The context in `model_info` is what it was trained
    with, many times what it is served with.
    """
    parameters = _object(answer).get("parameters")
    found = _NUM_CTX.search(parameters[:65536]) if isinstance(parameters, str) else None
    return _said(int(found[1])) if found else None


def in_lm_studio(answer: object, model: str) -> Said | None:
    """LM Studio's `/api/v0/models`: the context that the model was loaded with."""
    for entry in _entries(answer):
        if entry.get("id") == model:
            return _said(entry.get("loaded_context_length"))
    return None


def in_litellm(answer: object, model: str) -> Said | None:
    """LiteLLM's `/model/info`."""
    for entry in _entries(answer):
        info = _object(entry.get("model_info"))
        window = _tokens(info.get("max_input_tokens"))
        if entry.get("model_name") == model and window is not None:
            return Said(window, _tokens(info.get("max_output_tokens")))
    return None


def _said(window: object) -> Said | None:
    number = _tokens(window)
    return None if number is None else Said(number)


def _entries(answer: object) -> Iterator[dict[str, Any]]:
    return _objects(_object(answer).get("data"))


def _objects(value: object) -> Iterator[dict[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _MOST else None


def _ollama_name(name: object) -> object:
    return name if not isinstance(name, str) or ":" in name else f"{name}:latest"
