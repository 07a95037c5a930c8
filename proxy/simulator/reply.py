"""What the simulated model says, before it has a shape on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.simulator.tokens import Counter

ARGUMENT_PIECE = 8


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice; with `n` choices all are alike."""

    pieces: tuple[str, ...]
    calls: tuple[ToolCall, ...]
    tokens: int  # as the vocabulary counts them
    finish_reason: str

    def message(self) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": None if self.calls else "".join(self.pieces),
            "refusal": None,
        }
        if self.calls:
            return {**message, "tool_calls": [_call(call) for call in self.calls]}
        return {**message, "annotations": []}

    def deltas(self) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": None if self.calls else "", "refusal": None}
        for piece in filter(None, self.pieces):
            yield {"content": piece}
        for index, call in enumerate(self.calls):
            opening = {"index": index, **_call(ToolCall(call.id, call.name, ""))}
            yield {"tool_calls": [opening]}
            for start in range(0, len(call.arguments), ARGUMENT_PIECE):
                fragment = call.arguments[start : start + ARGUMENT_PIECE]
                yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def saying(pieces: list[str], limit: int | None) -> Reply:
    allowed = len(pieces) if limit is None else limit
    said = tuple(pieces[:allowed])
    return Reply(said, (), len(said), "length" if allowed < len(pieces) else "stop")


def calling(calls: tuple[ToolCall, ...], counter: Counter) -> Reply:
    tokens = sum(counter.count(call.name) + counter.count(call.arguments) for call in calls)
    return Reply((), calls, tokens, "tool_calls")
