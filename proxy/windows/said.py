"""What servers say of their models' windows, each in its own words. Pure: parsed answers in, a window out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

# No server has less or more; such a figure is a mistake, or means that there is none.
LEAST = 128
MOST = 10**8

# Their one model answers under any name.
_ANY_NAME = ("llamacpp", "sglang")
# OpenRouter's ways of choosing who answers; the model is the one without it.
_WAYS = (":online", ":nitro", ":floor", ":exacto")
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")


class Said(msgspec.Struct, frozen=True, array_like=True):
    window: int
    max_output: int | None = None
    excludes_answer: bool | None = False  # None: it does not say


def in_model_list(answer: object, model: str) -> Said | None:
    """`/v1/models`: vLLM and SGLang, llama.cpp, OpenRouter, Groq, Mistral, Together and their like."""
    entries = list(_entries(answer))
    entry = _named(entries, model)
    if entry is None and len(entries) == 1 and entries[0].get("owned_by") in _ANY_NAME:
        entry = entries[0]
    return None if entry is None else _in_entry(entry)


def _named(entries: list[dict[str, Any]], model: str) -> dict[str, Any] | None:
    plain = next((model.removesuffix(way) for way in _WAYS if model.endswith(way)), model)
    for name in (model, plain):
        for entry in entries:
            aliases = entry.get("aliases")
            if entry.get("id") == name or (isinstance(aliases, list) and name in aliases):
                return entry
    return None


def _in_entry(entry: dict[str, Any]) -> Said | None:
    # OpenRouter's: who answers may have less than the model.
    serving = _object(entry.get("top_provider"))
    output = _least(serving.get("max_completion_tokens"), *map(entry.get, _OUTPUTS))
    if "loaded_context_length" in entry or "state" in entry:
        return _said(entry.get("loaded_context_length"))  # LM Studio's: the maximum is not what is loaded
    # llama.cpp's: `n_ctx_train` beside it is what the model could do, not what the server does.
    served = _object(entry.get("meta")).get("n_ctx")
    window = _least(*map(entry.get, _WINDOWS), serving.get("context_length"), served)
    if window is not None:
        return Said(window, output)
    prompt = _tokens(entry.get("max_input_tokens"))
    return None if prompt is None else Said(prompt, output, excludes_answer=None)


def in_props(answer: object, _model: str) -> Said | None:
    """llama.cpp's `/props`: the window of one slot, which is what a request gets."""
    return _said(_object(_object(answer).get("default_generation_settings")).get("n_ctx"))


def in_running_models(answer: object, model: str) -> Said | None:
    """Ollama's `/api/ps`: the context that the model was loaded with."""
    for entry in _objects(_object(answer).get("models")):
        if _ollama_name(model) in map(_ollama_name, (entry.get("name"), entry.get("model"))):
            return _said(entry.get("context_length"))
    return None


_NUM_CTX = re.compile(r"^num_ctx[ \t]+(\d{1,12})[ \t]*$", re.MULTILINE)


def in_model_card(answer: object, _model: str) -> Said | None:
    """Ollama's `/api/show`: only what its parameters set, and no more than it was trained with.

    Where they set nothing, the server's own default holds (4,096 to 262,144, by its memory and environment),
    which it tells nobody: only a loaded model shows it.
    """
    card = _object(answer)
    parameters = card.get("parameters")
    found = _NUM_CTX.search(parameters[:65536]) if isinstance(parameters, str) else None
    if found is None:
        return None
    trained = [value for key, value in _object(card.get("model_info")).items() if _is_trained_context(key)]
    return _said(_least(int(found[1]), *trained))


def _is_trained_context(key: object) -> bool:
    return isinstance(key, str) and key.endswith(".context_length")


def in_lm_studio(answer: object, model: str) -> Said | None:
    """LM Studio's `/api/v0/models`: the context that the model was loaded with."""
    for entry in _entries(answer):
        if entry.get("id") == model:
            return _said(entry.get("loaded_context_length"))
    return None


def in_litellm(answer: object, model: str) -> Said | None:
    """LiteLLM's `/model/info`. A name may stand for several deployments: the smallest takes every prompt."""
    infos = [
        _object(entry.get("model_info")) for entry in _entries(answer) if entry.get("model_name") == model
    ]
    window = _least(*(info.get("max_input_tokens") for info in infos))
    if window is None:
        return None
    # For most models the number is the whole window, for some the prompt's part of it: it does not say.
    return Said(window, _least(*(info.get("max_output_tokens") for info in infos)), excludes_answer=None)


def _said(window: object) -> Said | None:
    number = _tokens(window)
    return None if number is None else Said(number)


def _entries(answer: object) -> Iterator[dict[str, Any]]:
    """Of a list in `data`, or of the list that Together answers with."""
    return _objects(answer if isinstance(answer, list) else _object(answer).get("data"))


def _objects(value: object) -> Iterator[dict[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _least(*values: object) -> int | None:
    """Where several are said, all of them hold."""
    return min(_figures(values), default=None)


def _figures(values: Iterable[object]) -> Iterator[int]:
    return (number for value in values if (number := _tokens(value)) is not None)


def _tokens(value: object) -> int | None:
    return value if type(value) is int and LEAST <= value <= MOST else None


def _ollama_name(name: object) -> object:
    """`llama3` is short for `llama3:latest`."""
    if not isinstance(name, str) or ":" in name.rpartition("/")[2]:
        return name
    return f"{name}:latest"
