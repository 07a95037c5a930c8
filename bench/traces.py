"""Recorded conversations: what was asked, and, where that is known, what the provider reported for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import ROOT
from proxy.usage import Usage

# Kept beside the project, not in it: their licences differ.
FOLDER = ROOT.parent / "shared" / "traces"
FORMAT = """\
They are kept beside the project, not in it; --traces FOLDER looks for them elsewhere. Every kind has a file
of JSON lines (aider.jsonl, openhands.jsonl, …), a conversation in each line:
{"id": "…", "model": "…" or null, "tools": […] or null, "messages": […],
 "usage": [{"n_messages": 3, "prompt_tokens": 90, "completion_tokens": 9}, …]}"""
BILLED = ("tau2.jsonl", "openhands.jsonl")


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    bill: Usage


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    model: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    bills: list[tuple[int, Usage]]  # how many of the messages were sent, and what for

    @property
    def whole(self) -> bool:
        """Tools that were called but not recorded were billed all the same."""
        return bool(self.tools) or not any(message.get("tool_calls") for message in self.messages)

    def requests(self) -> Iterator[Request]:
        for length, bill in self.bills:
            body = {"model": self.model, "messages": self.messages[:length]}
            yield Request(json.dumps(body | ({"tools": self.tools} if self.tools else {})).encode(), bill)

    def turns(self) -> list[int]:
        """How many messages each request had: all before an answer. A greeting answers nobody.

        Some agents work without a user, on their instructions alone.
        """
        roles = [message["role"] for message in self.messages]
        asked = roles.index("user") if "user" in roles else 0
        return [length for length, role in enumerate(roles) if role == "assistant" and length > asked]


def conversations(folder: Path = FOLDER) -> list[Conversation]:
    """In the order they were recorded; none where the folder is absent."""
    files = [folder / name for name in BILLED if (folder / name).exists()]
    return [conversation for file in files for conversation in _read(file)]


def by_kind(folder: Path = FOLDER) -> dict[str, list[Conversation]]:
    """All of them, billed or not, by the name of their file."""
    return {file.stem: _read(file) for file in sorted(folder.glob("*.jsonl"))}


def missing(folder: Path = FOLDER) -> list[str]:
    return [name for name in BILLED if not (folder / name).exists()]


def _read(file: Path) -> list[Conversation]:
    with file.open() as lines:
        return [_conversation(json.loads(line)) for line in lines]


def _conversation(trace: dict[str, Any]) -> Conversation:
    bills = [
        (bill["n_messages"], Usage(bill["prompt_tokens"], bill["completion_tokens"]))
        for bill in trace["usage"]
    ]
    return Conversation(trace["id"], trace["model"] or "", trace["tools"] or [], trace["messages"], bills)
