"""What the strictest server would say of an array of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
INSTRUCTING = {"system", "developer"}


def faults(messages: list[Message]) -> list[str]:
    return [*_faults_of_each(messages), *_faults_of_tools(messages), *_faults_of_functions(messages)]


def user_speaks_first(messages: list[Message]) -> bool:
    spoken = [message["role"] for message in messages if message["role"] not in INSTRUCTING]
    return spoken[:1] == ["user"]


def _faults_of_each(messages: list[Message]) -> Iterator[str]:
    if not messages:
        yield "no messages"
    for place, message in enumerate(messages):
        if message.get("role") not in ROLES:
            yield f"{place}: a role that nobody knows"
        speechless = message.get("role") == "assistant" and message.get("content") is None
        if not speechless and not isinstance(message.get("content"), str | list):
            yield f"{place}: says nothing"


def _faults_of_tools(messages: list[Message]) -> Iterator[str]:
    """Each call has one result, and nothing stands between a message that calls and its results."""
    unanswered: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in unanswered:
                yield f"{place}: a result that the message before did not ask for"
            else:
                unanswered.remove(message["tool_call_id"])
            continue
        yield from _left_open(place, unanswered)
        unanswered = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(unanswered)) < len(unanswered):
            yield f"{place}: two calls of one id"
        if "tool_calls" in message and not unanswered:
            yield f"{place}: a call of nothing"
    yield from _left_open(len(messages), unanswered)


def _left_open(place: int, unanswered: list[str]) -> Iterator[str]:
    if unanswered:
        yield f"{place}: no result of {', '.join(unanswered)}"


def _faults_of_functions(messages: list[Message]) -> Iterator[str]:
    called: str | None = None
    for place, message in enumerate(messages):
        answered = message.get("name") if message.get("role") == "function" else None
        if answered != called:
            yield f"{place}: {called or 'nothing'} was called, {answered or 'nothing'} has answered"
        called = (message.get("function_call") or {}).get("name")
    if called is not None:
        yield f"{len(messages)}: no result of {called}"
