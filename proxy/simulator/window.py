"""What becomes of a prompt that is too long, and of a wish for too long an answer."""

from __future__ import annotations

import re
from typing import Any

from proxy.simulator.answers import ApiError

Message = dict[str, Any]


def check_window(prompt: int, answer: int | None, window: int) -> None:
    """The answer counts only where the client declared it, as with OpenAI."""
    limit = f"This model's maximum context length is {window} tokens. However, "
    if prompt > window:
        text = f"your messages resulted in {prompt} tokens. Please reduce the length of the messages."
    elif answer is not None and prompt + answer > window:
        text = (
            f"you requested {prompt + answer} tokens ({prompt} in the messages, {answer} in the completion). "
            "Please reduce the length of the messages or completion."
        )
    else:
        return
    raise ApiError(limit + text, param="messages", code="context_length_exceeded")


def in_other_words(too_long: ApiError) -> ApiError:
    """As a server would say it of which nobody has heard."""
    window, asked = re.findall(r"\d+", str(too_long))[:2]
    return ApiError(f"Sorry, this has {asked} pieces, and we can only take in {window}.", code="bad_input")


def without_numbers() -> ApiError:
    """As Groq says it."""
    text = "Please reduce the length of the messages or completion."
    return ApiError(text, param="messages", code="context_length_exceeded")


def check_answer(asked: int | None, longest: int | None) -> None:
    if asked is not None and longest is not None and asked > longest:
        text = (
            f"max_tokens is too large: {asked}. This model supports at most {longest} completion tokens, "
            f"whereas you provided {asked}."
        )
        raise ApiError(text, param="max_tokens", code="invalid_value")


def newest_that_fit(messages: list[Message], sizes: list[int], window: int) -> list[Message]:
    """As Ollama cuts a prompt: the instructions stay, the oldest of the others go, the last one never does.

    `sizes` are the prompt's tokens before the first message and up to the end of each.
    """
    spoken = _first_spoken(messages)
    excess = sizes[-1] - window
    start = spoken
    while start < len(messages) - 1 and sizes[start] - sizes[spoken] < excess:
        start += 1
    return [*messages[:spoken], *messages[start:]]


def _first_spoken(messages: list[Message]) -> int:
    return next(
        (index for index, message in enumerate(messages) if message["role"] not in ("system", "developer")),
        len(messages),
    )
