"""What many open models' chat templates refuse, in their own words as vLLM passes them on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from proxy.simulator.answers import ApiError

Message = dict[str, Any]

INSTRUCTING = ("system", "developer")


def check_template(messages: list[Message]) -> None:
    roles = [message["role"] for message in messages]
    if any(role in INSTRUCTING for role in roles[1:]):
        raise _refused("System message must be at the beginning.")
    if ("user", "user") in pairwise(roles):
        raise _refused("Conversation roles must alternate user/assistant/user/assistant/...")


def check_turns(messages: list[Message]) -> None:
    """An instruction at the beginning is told with the first user message; calls and results are no turns."""
    spoken = messages[1:] if messages[0]["role"] in INSTRUCTING else messages
    turns = [message for message in spoken if message["role"] != "tool" and "tool_calls" not in message]
    if any((turn["role"] == "user") is bool(number % 2) for number, turn in enumerate(turns)):
        raise _refused("Conversation roles must alternate user/assistant/user/assistant/...")


def _refused(text: str) -> ApiError:
    return ApiError(text, kind="BadRequestError", code=400)
