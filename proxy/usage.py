"""What an upstream says a request has cost, in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MOST = 2**53


@dataclass(frozen=True, slots=True)
class Usage:
    prompt: int
    completion: int
    cached: int = 0  # the part of `prompt` that was read from the provider's cache
    reasoning: int = 0  # the part of `completion` that the client never sees


def usage_from(answer: object) -> Usage | None:
    """The usage in an answer or a chunk of one; None where it has none, or none that makes sense."""
    if not isinstance(answer, dict):
        return None
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt = _tokens(usage.get("prompt_tokens"))
    if prompt is None:
        return None
    cached = _cached(usage)
    return Usage(
        # More cached than there is in all: this one counts what was cached beside the rest.
        prompt=prompt + cached if cached > prompt else prompt,
        completion=_tokens(usage.get("completion_tokens")) or 0,
        cached=cached,
        reasoning=_detail(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _cached(usage: dict[str, Any]) -> int:
    # DeepSeek has a field of its own; everybody else follows OpenAI.
    return _detail(usage, "prompt_tokens_details", "cached_tokens") or (
        _tokens(usage.get("prompt_cache_hit_tokens")) or 0
    )


def _detail(usage: dict[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return (_tokens(details.get(name)) or 0) if isinstance(details, dict) else 0


def _tokens(value: object) -> int | None:
    """A count of tokens: floats of whole value are taken too, as some servers send them."""
    if type(value) is int or (type(value) is float and value == value):
        return int(value) if 0 <= value < _MOST else None
    return None
