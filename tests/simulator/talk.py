"""Short ways to write a conversation down."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> Message:
    function = {"name": "look", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function} for call in ids],
    }


def result(call: str, text: str = "seen") -> Message:
    return {"role": "tool", "tool_call_id": call, "content": text}


def tool(name: str) -> dict[str, Any]:
    properties = {"text": {"type": "string", "description": "what to look for", "enum": ["a", "b"]}}
    parameters = {"type": "object", "properties": properties}
    return {
        "type": "function",
        "function": {"name": name, "description": "looks", "parameters": parameters, "strict": True},
    }


def chat(*messages: Message, model: str = "gpt-4o", **options: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), **options}
