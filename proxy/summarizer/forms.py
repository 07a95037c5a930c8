"""How a model wants to be asked: what it refuses is asked for in another way, and remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from proxy.fold.wording import answer_text
from proxy.recent import Recent
from proxy.summarizer.wanted import Wanted, Written
from proxy.windows.names import LONGEST

_MODELS = 256
# What a model may think before it writes, where its thoughts count as part of the answer.
_THOUGHTS = 8_000


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
        fields: dict[str, Any] = {self.limit: wanted.most_tokens + (_THOUGHTS if self.thinks else 0)}
        if self.temperature and temperature is not None:
            fields["temperature"] = temperature
        return fields

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
