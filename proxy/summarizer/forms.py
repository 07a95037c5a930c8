"""How a model wants to be asked: what it refuses is asked for in another way, and remembered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from proxy.fold.lengths import LEAST_TOKENS
from proxy.fold.wording import answer_text, without_system
from proxy.recent import Recent
from proxy.summarizer.wanted import TOO_LONG, Wanted, Written
from proxy.windows.names import LONGEST
from proxy.windows.overflow import LongestAnswer

_MODELS = 256
# What a model may think before it writes, where its thoughts count as part of the answer.
_THOUGHTS = 8_000
# No window of a model that writes summaries is smaller: what says so is about something else.
_LEAST_WINDOW = 2_000

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
# What templates say that know no system message.
_ABOUT_ROLES = re.compile(r"system (?:role|message)|roles must alternate|\btemplate\b", re.IGNORECASE)


class Refused(Exception):
    """Not by this model, or not in this form. What was said is for finding out which, and for no log.

    Where it was about length: `window` is the one that was named, `answer` what was said of the answer's own.
    """

    def __init__(
        self, reason: str, said: str, *, window: int | None = None, answer: LongestAnswer | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.said = said
        self.window = window if window is not None and window >= _LEAST_WINDOW else None
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Form:
    temperature: bool = True
    limit: str = "max_tokens"  # the name for the longest answer
    thinks: bool = False
    system: bool = True  # what is asked of it may be told in a system message
    longest: int | None = None  # of its answers
    window: int | None = None

    def messages(self, wanted: Wanted) -> bytes:
        plain = self.system or wanted.beside_messages
        return wanted.messages if plain else without_system(wanted.messages)

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

    def is_too_small_for(self, wanted: Wanted) -> bool:
        return self.window is not None and wanted.tokens + wanted.most_tokens > self.window

    def _most_tokens(self, wanted: Wanted) -> int:
        most = wanted.most_tokens + (_THOUGHTS if self.thinks else 0)
        if self.window is not None:
            most = max(wanted.most_tokens, min(most, self.window - wanted.tokens))
        return most if self.longest is None else min(most, self.longest)

    def after_refusal(self, refused: Refused, wanted: Wanted) -> Form:
        """The same where nothing is named that could be asked for otherwise."""
        if refused.reason == TOO_LONG:
            return self if refused.window is None else replace(self, window=refused.window)
        if refused.answer is not None:
            asked = self._most_tokens(wanted)
            longest = asked // 2 if refused.answer.limit is None else refused.answer.limit
            return replace(self, longest=longest) if LEAST_TOKENS <= longest < asked else self
        # OpenAI's reasoning models take neither of the two as others do.
        if "max_completion_tokens" in refused.said and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if "temperature" in refused.said and self.temperature:
            return replace(self, temperature=False)
        return replace(self, system=False) if _ABOUT_ROLES.search(refused.said) else self

    def after_answer(self, written: Written) -> Form:
        """One that came to its limit before it had written a word has spent it on thinking."""
        silent = written.finish_reason == "length" and not answer_text(written.message)
        return replace(self, thinks=True) if silent else self


class Forms:
    def __init__(self) -> None:
        self._known: Recent[str, Form] = Recent(_MODELS)

    async def ask(self, model: str, wanted: Wanted, asked: Callable[[Form], Awaitable[Written]]) -> Written:
        """Ask in the form that is known to work, or in one after the other. Raises Refused if it was about
        something else.
        """
        form = self._known.get(model) or Form()
        while True:
            if form.is_too_small_for(wanted):
                raise Refused(TOO_LONG, "", window=form.window)
            try:
                written = await asked(form)
                other = form.after_answer(written)
            except Refused as refused:
                other = form.after_refusal(refused, wanted)
                if other.window != form.window:
                    self._remember(model, other)  # what is asked then is another question
                if other == form or refused.reason == TOO_LONG:
                    raise
            else:
                if other == form:
                    self._remember(model, form)
                    return written
            form = other

    def _remember(self, model: str, form: Form) -> None:
        if len(model) <= LONGEST:  # clients may make up names
            self._known.put(model, form)
