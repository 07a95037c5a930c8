"""How a model wants to be asked: what it refuses is asked for in another way, and remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from proxy.fold.wording import answer_text
from proxy.recent import Recent
from proxy.summarizer.wanted import Wanted, Written
from proxy.windows.names import LONGEST

_MODELS = 256
# What a model may think before it writes, where its thoughts count as part of the answer.
_THOUGHTS = 8_000

# What a client's own request says of the answer that it wants, and what is not for a summary.
_LIMITS = ("max_completion_tokens", "max_tokens")
_CHOICES = {"tools": "tool_choice", "functions": "function_call"}
_OF_AN_ANSWER = frozenset(
    (
        *_LIMITS,
        *_CHOICES.values(),
        *("stream", "stream_options", "n", "stop", "response_format", "prediction"),
        *("modalities", "audio", "logprobs", "top_logprobs"),
    )
)


class Refused(Exception):
    """Not by this model, or not in this form. What was said is for finding out which, and for no log."""

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.said = said


@dataclass(frozen=True, slots=True)
class Form:
    temperature: bool = True
    limit: str = "max_tokens"  # the name for the longest answer
    thinks: bool = False

    def fields(self, wanted: Wanted, temperature: float | None) -> dict[str, Any]:
        if wanted.beside_messages:
            return self._as_it_was_asked(wanted)
        fields: dict[str, Any] = {self.limit: self._most_tokens(wanted)}
        if self.temperature and temperature is not None:
            fields["temperature"] = temperature
        return fields

    def _as_it_was_asked(self, wanted: Wanted) -> dict[str, Any]:
        """What decides on the provider's cache stays the client's; no tool is called, and the answer is one
        text of its own length.
        """
        own = wanted.beside_messages
        spelled = next((name for name in _LIMITS if own.get(name, b"null") != b"null"), self.limit)
        fields: dict[str, Any] = {
            name: orjson.Fragment(value) for name, value in own.items() if name not in _OF_AN_ANSWER
        }
        for name, choice in _CHOICES.items():
            if own.get(name, b"null") not in (b"null", b"[]"):
                fields[choice] = "none"
        return {**fields, spelled: self._most_tokens(wanted)}

    def _most_tokens(self, wanted: Wanted) -> int:
        return wanted.most_tokens + (_THOUGHTS if self.thinks else 0)

    def after_refusal(self, said: str) -> Form:
        """OpenAI's reasoning models take neither of the two as others do. The same where neither is named."""
        if "max_completion_tokens" in said and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        return replace(self, temperature=False) if "temperature" in said else self

    def after_answer(self, written: Written) -> Form:
        """One that came to its limit before it had written a word has spent it on thinking."""
        silent = written.finish_reason == "length" and not answer_text(written.message)
        return replace(self, thinks=True) if silent else self


class Forms:
    def __init__(self) -> None:
        self._known: Recent[str, Form] = Recent(_MODELS)

    async def ask(self, model: str, asked: Callable[[Form], Awaitable[Written]]) -> Written:
        """Ask in the form that is known to work, or in one after the other: each change is made once at
        most. Raises Refused if it was not about the form.
        """
        form = self._known.get(model) or Form()
        while True:
            try:
                written = await asked(form)
                other = form.after_answer(written)
            except Refused as refused:
                other = form.after_refusal(refused.said)
                if other == form:
                    raise
            else:
                if other == form:
                    self._remember(model, form)
                    return written
            form = other

    def _remember(self, model: str, form: Form) -> None:
        if len(model) <= LONGEST:  # clients may make up names
            self._known.put(model, form)
