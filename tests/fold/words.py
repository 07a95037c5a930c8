"""Messages as tests write them: short, and in the client's own bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.fold.history import Turn

TRACES = Path(__file__).parents[3] / "shared" / "traces"


def count(text: str) -> int:
    """Some tokens for a text: by bytes, so that no text is free, and more text is never less."""
    return (len(text.encode(errors="surrogatepass")) + 3) // 4


def turn(message: dict[str, Any] | bytes) -> Turn:
    raw = message if isinstance(message, bytes) else json.dumps(message, ensure_ascii=False).encode()
    role = message.get("role", "") if isinstance(message, dict) else ""
    return Turn(raw, role if isinstance(role, str) else "", b"", count(raw.decode(errors="replace")))


def user(text: Any) -> Turn:
    return turn({"role": "user", "content": text})


def assistant(text: Any, **more: Any) -> Turn:
    return turn({"role": "assistant", "content": text, **more})


def calls(name: str, arguments: str, id: str = "call_1") -> Turn:
    function = {"name": name, "arguments": arguments}
    return assistant(None, tool_calls=[{"id": id, "type": "function", "function": function}])


def result(text: Any, id: str = "call_1") -> Turn:
    return turn({"role": "tool", "tool_call_id": id, "content": text})


def recorded(file: str, most: int) -> Iterator[list[Turn]]:
    """The first conversations of a file of real ones, without their system messages."""
    path = TRACES / file
    if not path.exists():
        pytest.skip("no recorded conversations here")
    with path.open() as lines:
        for line, _ in zip(lines, range(most), strict=False):
            yield [turn(message) for message in json.loads(line)["messages"] if message["role"] != "system"]
