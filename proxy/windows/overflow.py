"""Recognising that a prompt was refused as too long, in the words of every provider we know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

# A refusal that quotes the whole prompt has said what it has to say before this.
_LOOKED_AT = 16 * 1024

# Answers of these kinds may be about the prompt's length; 500 and 502 are what gateways make of a 400.
_STATUSES = frozenset({400, 413, 422, 500, 502})


@dataclass(frozen=True, slots=True)
class Overflow:
    limit: int | None = None
    asked: int | None = None
    of_prompt: bool = False  # the limit is for the prompt alone, not for prompt and answer together


_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})

# Too much in a minute, a day or an account is another matter, and so is a wish for too long an answer.
_OTHER_LIMITS = re.compile(
    r"rate.?limit|too many requests|per (?:minute|day|hour)|\b[rt]p[md]\b|quota|billing|credits"
    r"|string too long|string_above_max_length|max_(?:completion_)?tokens\W{0,3}\s?(?:is too large|must be)",
    re.IGNORECASE,
)

# What stands between two figures is bounded, so that a hostile text costs no more than reading it.
_OF_BOTH = (
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, Groq, Fireworks
    r"maximum context length (?:is|of) LIMIT"
    r"(?:.{0,60}?(?:requested(?: about| a total of)?|resulted in|contains(?: at least)?) ASKED)?",
    r"maximum model length (?:is|of) LIMIT",  # vLLM
    r"\(ASKED tokens\) is longer than the model'?s context length \(LIMIT",  # SGLang
    r"prompt contains ASKED tokens.{0,80}?LIMIT maximum context length",  # Mistral
    r"too large for model with LIMIT maximum context length",  # Mistral
    r"`inputs` tokens \+ `max_new_tokens` must be <= LIMIT(?:.{0,120}?given:? ASKED)?",  # TGI, Together
    r"current length is ASKED while limit is LIMIT",  # Zhipu
    r"exceeded model token limit(?:: LIMIT)?(?: \(requested: ASKED\))?",  # Moonshot
    r"`max_tokens` exceed context limit: ASKED \+ [\d,]+ > LIMIT",  # Anthropic
    r"(?:\(ASKED tokens\) )?exceeds the available context size(?: \(LIMIT tokens)?",  # llama.cpp
    # LM Studio
    r"keep the first ASKED tokens when context the overflows.{0,160}?context length of only LIMIT",
    r"tokens to keep from the initial prompt is greater than the context length",
    r"input length exceeds (?:the |maximum )*context length",  # Ollama
    r"exceeds? (?:the |this |model'?s |its |maximum )*context (?:window|length|size|limit)",
    r"reduce the length of the (?:messages|prompt|input)",
    r"context[ _](?:length|window|size) (?:was |has been |is )?exceeded|context_length_exceeded",
    r"context window exceeds limit|exceed context limit|prompt too long; exceeded",
)
_OF_PROMPT = (
    r"prompt is too long(?:: ASKED tokens > LIMIT)?",  # Anthropic, also through Bedrock and Vertex
    r"input is too long",  # Bedrock
    # Gemini, Vertex
    r"input token count(?: \(?ASKED\)?)? exceeds the maximum number of tokens allowed(?: \(?LIMIT)?",
    r"input token count is ASKED but model only supports up to LIMIT",
    r"maximum prompt length is LIMIT(?:.{0,60}?contains ASKED)?",  # xAI
    r"`inputs` must have less than LIMIT tokens(?:.{0,20}?given:? ASKED)?",  # TGI
)


def _rule(pattern: str) -> re.Pattern[str]:
    figure = r"[\d,]*\d"
    named = pattern.replace("LIMIT", f"(?P<limit>{figure})").replace("ASKED", f"(?P<asked>{figure})")
    return re.compile(named, re.IGNORECASE | re.DOTALL)


_RULES = [*((_rule(text), False) for text in _OF_BOTH), *((_rule(text), True) for text in _OF_PROMPT)]


def overflow(status: int | None, body: object) -> Overflow | None:
    """What a refusal says of the prompt's length; None where it speaks of something else.

    `status` is None for an error that comes as an event of a stream.
    """
    if status is not None and status not in _STATUSES:
        return None
    error = _error_in(body)
    text = " ".join(_texts(error, body))[:_LOOKED_AT]
    coded = not _CODES.isdisjoint(str(error.get(key)) for key in ("code", "type"))
    if not coded and _OTHER_LIMITS.search(text):
        return None
    found = _in_words(text) or (Overflow() if coded else None)
    return found and Overflow(
        _figure(error.get("n_ctx")) or found.limit,  # llama.cpp says both beside its text
        _figure(error.get("n_prompt_tokens")) or found.asked,
        found.of_prompt,
    )


def _error_in(body: object) -> dict[str, Any]:
    if isinstance(body, list) and body:  # Gemini's own shape
        body = body[0]
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    return error if isinstance(error, dict) else body


def _texts(error: dict[str, Any], body: object) -> Iterator[str]:
    """Wherever the words may stand: under OpenAI's names, FastAPI's, or in what a gateway quotes."""
    if isinstance(body, str):
        yield body
    outer = body if isinstance(body, dict) else {}
    metadata = error.get("metadata")
    quoted = metadata.get("raw") if isinstance(metadata, dict) else None
    for value in (outer.get("error"), error.get("message"), error.get("detail"), quoted):
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) or (isinstance(value, dict) and value is not error):
            yield orjson.dumps(value).decode()


def _in_words(text: str) -> Overflow | None:
    for rule, of_prompt in _RULES:
        if (found := rule.search(text)) is not None:
            said = found.groupdict()
            return Overflow(_figure(said.get("limit")), _figure(said.get("asked")), of_prompt)
    return None


def _figure(value: object) -> int | None:
    """Long rows of digits are no figures, and Python takes its time over them."""
    text = value.replace(",", "") if isinstance(value, str) else str(value) if type(value) is int else ""
    number = int(text) if text.isdecimal() and len(text) < 13 else 0
    return number or None
