"""How large a request is, and how much room its model has for it: what every decision is made on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache

from proxy.budget import Budget, Policy, budget
from proxy.counting.anchors import Lesson
from proxy.counting.counter import Counted, Counter, Manner
from proxy.counting.framing import Scheme
from proxy.counting.images import DEFAULT_RULE
from proxy.counting.measuring import Split
from proxy.counting.vocabularies import DEFAULT
from proxy.messages import ChatRequest
from proxy.usage import Usage
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.overflow import Overflow
from proxy.windows.resolve import Resolved, Windows

THRESHOLD = 0.95

# How long the first requests of a process wait for the model map to be read, which takes a tenth of it.
_PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Shares:
    """The user's general word on how full a window may be; None where it was left to the model map."""

    threshold: float | None
    soft_ratio: float
    margin: float

    def policy_for(self, known: KnownModel, wished: float | None = None) -> Policy:
        if wished is not None:
            return Policy(wished, self.soft_ratio, self.margin)
        said = known.facts.threshold
        own = known.origins.get("threshold") is Origin.SETTING
        threshold = said if own or self.threshold is None else self.threshold
        return Policy(THRESHOLD if threshold is None else threshold, self.soft_ratio, self.margin)


@lru_cache(maxsize=1024)
def manner_of(facts: ModelFacts) -> Manner:
    scheme = Scheme(facts.encoding or DEFAULT, facts.images or DEFAULT_RULE)
    return Manner(scheme, facts.factor or 1.0, facts.tool_prompt or 0)


@dataclass(frozen=True, slots=True)
class Sized:
    tenant: bytes
    model: str
    counted: Counted
    window: Resolved
    budget: Budget
    declared: int | None  # how long an answer the request asks for at most


class Sizing:
    def __init__(
        self, counter: Counter, windows: Windows, shares: Shares, models_read: asyncio.Event
    ) -> None:
        self._counter = counter
        self._windows = windows
        self._shares = shares
        self._models_read = models_read

    async def split(self, tenant: bytes, chat: ChatRequest) -> Split | None:
        """A request in its messages; None where they cannot be told apart. It is not counted yet."""
        if not self._models_read.is_set():
            await self._patiently()
        return await self._counter.split(tenant, chat)

    def recalling(self, tenant: bytes, chat: ChatRequest, split: Split | None) -> list[Awaitable[None]]:
        """Questions to the store, where others may know more of the request or its model."""
        questions = self._windows.recalling(tenant, chat.model or "")
        return questions if split is None else [*questions, *self._counter.recalling(chat, split)]

    async def size(
        self, tenant: bytes, chat: ChatRequest, split: Split | None, threshold: float | None = None
    ) -> Sized:
        """`threshold` is the request's own wish."""
        return self._sized(tenant, chat, await self._counter.count(chat, split), threshold)

    async def size_form(self, came: Sized, chat: ChatRequest, threshold: float | None = None) -> Sized:
        """Another form of a request. Nobody is asked: what is new in it is our own, and counted faster than
        it is asked for.
        """
        prompt = came.counted.prompt
        split = await self._counter.split(came.tenant, chat, prompt)
        return self._sized(came.tenant, chat, await self._counter.count(chat, split, prompt), threshold)

    def _sized(self, tenant: bytes, chat: ChatRequest, counted: Counted, threshold: float | None) -> Sized:
        model = chat.model or ""
        window = self._windows.of(tenant, model)
        allowed = budget(window.window, chat.answer_limit, self._shares.policy_for(window.known, threshold))
        return Sized(tenant, model, counted, window, allowed, chat.answer_limit)

    def text_counter(self, sized: Sized) -> Callable[[str], int]:
        """What a text takes of the same window, in tokens."""
        return self._counter.of_text(sized.counted)

    def window_of(self, tenant: bytes, model: str) -> Resolved:
        return self._windows.of(tenant, model)

    def answered(self, sized: Sized, usage: Usage | None) -> Lesson:
        """After the answer: learn from what was billed."""
        lesson = self._counter.record(sized.tenant, sized.counted, usage)
        if not sized.model:
            return lesson  # it has no name to learn anything under
        learned, said = self._windows.learned, sized.window.origin is not Origin.DEFAULT
        if usage is not None and lesson.truncated:
            sent = sized.counted.count.tokens
            learned.truncated(sized.tenant, sized.model, sent, usage.prompt, somebody_says=said)
        elif usage is not None:
            learned.accepted(sized.tenant, sized.model, usage.prompt)
        return lesson

    def refused(self, sized: Sized, too_long: Overflow) -> None:
        if sized.model:
            counted = sized.counted.count.tokens
            self._windows.learned.refused(sized.tenant, sized.model, too_long, counted, sized.declared)

    async def _patiently(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._models_read.wait()
        except TimeoutError:
            pass  # then what the user has said and what was learned must do, for this request
