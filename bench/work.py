"""A conversation of any length as coding agents have them, in sizes that recorded ones have."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from bench.conversation import text
from bench.traces import Conversation

# Bytes of a text: what a user asks for, what an assistant says to its call and at the end of a step. A tool's
# result is mostly short and sometimes long.
_ASKED, _SAID, _TOLD = 300, 150, 900
_RESULTS = (300, 700, 700, 2_000, 8_000)

TOOL = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Runs a command in the project's folder and returns what it prints",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "as in a shell"}},
            "required": ["command"],
        },
    },
}


def agents_work(messages: int) -> Conversation:
    """So many messages, and the answer to them."""
    chance = random.Random(messages)
    said = [{"role": "system", "content": "You are a careful engineer. " + text(chance, 2_000)}]
    steps = _steps(chance)
    while len(said) <= messages:
        said.append(next(steps))
    return Conversation("an agent's work", "", [TOOL], said, [])


def _steps(chance: random.Random) -> Iterator[dict[str, Any]]:
    while True:
        call = f"call_{chance.getrandbits(96):024x}"
        command = json.dumps({"command": text(chance, 60)})
        called = {"id": call, "type": "function", "function": {"name": "run", "arguments": command}}
        yield {"role": "user", "content": text(chance, _ASKED)}
        yield {"role": "assistant", "content": text(chance, _SAID), "tool_calls": [called]}
        yield {"role": "tool", "tool_call_id": call, "content": text(chance, chance.choice(_RESULTS))}
        yield {"role": "assistant", "content": text(chance, _TOLD)}
