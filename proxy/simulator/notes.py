"""A record as a modest model would write it: of the same conversation always the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.fold.transcript import BEGIN, END
from proxy.fold.wording import RECORD_WANTED
from proxy.simulator.tokens import text_of

Message = dict[str, Any]

MOST_NAMES = 24
LONGEST_NAME = 40
# Short enough for our own words to be the greater part: more would be an echo.
LONGEST_QUOTE = 80

_RECORD = re.compile(r"⟦record so far⟧\n(.*?)\n⟦end of record so far⟧", re.DOTALL)
_RECORD_ABOVE = re.compile(r"⟦record of the conversation so far⟧\n(.*?)\n\n⟦end of the record⟧", re.DOTALL)
_HEADING = re.compile(r"^⟦\d+ ([^⟧\n]*)⟧$", re.MULTILINE)
_WORD = re.compile(r"[\w./:-]+")
_GOAL = re.compile(r"^Goal and constraints: (.+)$", re.MULTILINE)
_TOLD = re.compile(r"told of (\d+) messages")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be summed up."""

    record: str  # of what came before, or nothing
    transcript: str  # without its fence

    @classmethod
    def asked_with(cls, messages: Sequence[Message]) -> Task:
        """Of the transcript in the last message, or of all the messages before it."""
        *above, last = messages
        return cls._above(above) if RECORD_WANTED in text_of(last) else cls._in(text_of(last))

    @classmethod
    def _above(cls, messages: Sequence[Message]) -> Task:
        told = [(message["role"], text_of(message)) for message in messages]
        record = next((found[1] for _, text in told if (found := _RECORD_ABOVE.search(text))), "")
        spoken = [(role, text) for role, text in told if role != "system" and not _RECORD_ABOVE.search(text)]
        entries = (f"⟦{number} {role}⟧\n{text}" for number, (role, text) in enumerate(spoken))
        return cls(record, "\n".join(entries))

    @classmethod
    def _in(cls, text: str) -> Task:
        # The rules name the marks too, before the transcript; in it nothing can be mistaken for them.
        before, _, rest = text.rpartition(BEGIN)
        record = _RECORD.search(before)
        return cls(record[1] if record else "", rest.partition(END)[0])

    @property
    def fenced(self) -> str:
        return f"{BEGIN}{self.transcript}{END}"

    def said(self) -> list[tuple[str, str]]:
        """Who said what, oldest first."""
        before, *found = _HEADING.split(self.transcript)
        numbered = list(zip(found[::2], map(str.strip, found[1::2]), strict=True))
        return numbered or [("user", before.strip())]


def notes(task: Task, most_tokens: int, count: Callable[[str], int]) -> str:
    """With as many names as there is room for."""
    names = list(dict.fromkeys(_names(task)))[:MOST_NAMES]
    text = _text(task, names)
    while names and count(text) > most_tokens:
        names.pop()
        text = _text(task, names)
    return text


def _text(task: Task, names: list[str]) -> str:
    before = _TOLD.search(task.record)
    messages = len(task.said()) + (int(before[1]) if before else 0)
    return "\n".join(
        [
            f"Goal and constraints: {_goal(task)}",
            f"State: this record has told of {messages} messages, and nothing in it is settled for good.",
            f"Facts and artefacts: {', '.join(names) or 'none that had a name'}.",
            f"Next steps: to go on from what came last, which was {_latest(task)}.",
        ]
    )


def _goal(task: Task) -> str:
    if known := _GOAL.search(task.record):
        return known[1]
    asked = task.record or next((text for who, text in task.said() if who.startswith("user")), "")
    return f"the user has asked for {_quoted(asked)}"


def _latest(task: Task) -> str:
    return " and then ".join(f"by the {who} {_quoted(text)}" for who, text in task.said()[-2:])


def _quoted(text: str) -> str:
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    return f'"{line[:LONGEST_QUOTE].rstrip()}"'


def _names(task: Task) -> Iterator[str]:
    """Files, identifiers and numbers, newest first, those of the record last."""
    for text in (*(text for _, text in reversed(task.said())), task.record):
        for word in reversed(_WORD.findall(text)):
            name = word.strip(".:-/")
            if 2 < len(name) <= LONGEST_NAME and re.search(r"[\d./:_-]", name):
                yield name
