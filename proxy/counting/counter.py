"""The one counter: whatever is decided by size, is decided by what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from proxy.counting import anchors, measuring
from proxy.counting.anchors import Basis, Count, Known, Lesson
from proxy.counting.calibration import first_calibration
from proxy.counting.estimate import Estimate
from proxy.counting.framing import Scheme
from proxy.counting.knowledge import Knowledge
from proxy.counting.measuring import Measurer, Split
from proxy.counting.once import Once
from proxy.counting.parts import without_media
from proxy.counting.prompt import Prompt
from proxy.counting.recollection import Measured
from proxy.messages import ChatRequest
from proxy.store.writing import KEPT, LateWriter
from proxy.usage import Usage

log = structlog.get_logger("tailfold")

_ROUGH_SHARE = 0.5  # of a count made from nothing but the number of bytes
# Counting has its own limits, which are shorter. This one is for what has none: a pool or a store that hangs.
LONGEST = 6.0
_AT_A_TIME = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manner:
    """How a model counts, as far as is known before its first bill."""

    scheme: Scheme = field(default_factory=Scheme)
    factor: float = 1.0  # its tokens for one of ours
    tool_prompt: int = 0  # what its provider adds where a request has tools


@dataclass(frozen=True, slots=True)
class Counted:
    """A request's count, and what it takes to learn from its bill."""

    count: Count
    model: str
    prompt: Prompt | None = None  # None where nothing could be measured: there is nothing to learn then
    measured: Measured | None = None  # its messages one by one
    known: Known | None = None
    choices: int = 1
    fresh: Mapping[bytes, Estimate] = field(default_factory=dict)
    came: Prompt | None = None  # where this is another form of it: the request as it came


class Counter:
    def __init__(
        self,
        measurer: Measurer,
        knowledge: Knowledge,
        store: LateWriter,
        manner: Callable[[str], Manner],
        *,
        longest: float = LONGEST,
        kept: Callable[[], float] = lambda: KEPT,
    ) -> None:
        """`kept` is how long counts are."""
        self._measurer = measurer
        self._knowledge = knowledge
        self._store = store
        self._manner = manner
        self._longest = longest
        self._kept = kept
        self._failures = Once()

    async def split(self, tenant: bytes, chat: ChatRequest, came: Prompt | None = None) -> Split | None:
        """A request in pieces, each under its name; None where nothing can be told apart. `came` is how it
        came, where this is another form of it.
        """
        try:
            if chat.readable:
                scheme, home = self._manner(chat.model or "").scheme, came.home if came else None
                async with asyncio.timeout(self._longest):
                    return await self._measurer.split(tenant, chat, scheme, home)
        except Exception as failure:  # noqa: BLE001 - a count is never worth a request
            self._log_once("split", failure)
        return None

    def recalling(self, chat: ChatRequest, split: Split) -> list[Awaitable[None]]:
        """Questions to the store, where others may know more of a request."""
        questions = self._knowledge.recalling(split.tenant, chat.model or "", split)
        counts = self._measurer.recalling(split)
        return questions if counts is None else [*questions, counts]

    async def count(self, chat: ChatRequest, split: Split | None, came: Prompt | None = None) -> Counted:
        """By what is remembered; what is not is counted now."""
        counted = await self._anyhow(chat, split, came)
        if counted.count.basis is Basis.ROUGH and (counted.prompt is not None or not chat.readable):
            kind = "in part" if chat.readable else "unreadable"
            if self._failures.first(f"rough {kind}"):
                log.warning("a request was taken by its length, not by its tokens", kind=kind)
        return counted

    def of_text(self, counted: Counted) -> Callable[[str], int]:
        """The tokens of a text, as the model counts them that was counted for. Safe in any thread."""
        manner = self._manner(counted.model)
        calibration = counted.known.calibration if counted.known else first_calibration(manner.factor)

        def tokens(text: str) -> int:
            return max(0, round(calibration.tokens(self._measurer.text(text, manner.scheme))))

        return tokens

    async def _anyhow(self, chat: ChatRequest, split: Split | None, came: Prompt | None) -> Counted:
        try:
            if split is not None:
                async with asyncio.timeout(self._longest):
                    return await self._count(chat, split, came)
        except Exception as failure:  # noqa: BLE001 - a count is never worth a request
            self._log_once("count", failure)
        return Counted(await asyncio.to_thread(_by_bytes, chat.raw), chat.model or "")

    async def _count(self, chat: ChatRequest, split: Split, came: Prompt | None) -> Counted:
        model = chat.model or ""
        manner = self._manner(model)
        found = await self._measurer.measure(split)
        prompt = found.measured.prompt
        if manner.tool_prompt and chat.has_tools:
            prompt = prompt.beside(manner.tool_prompt)
        known = self._knowledge.known(model, prompt, manner.factor)
        count = anchors.count(prompt, known)
        # What is new in another form is said by nobody but us, and is counted faster than it is asked for.
        fresh = found.fresh if came is None else {}
        return Counted(count, model, prompt, found.measured, known, chat.choices, fresh, came)

    def record(self, tenant: bytes, counted: Counted, usage: Usage | None) -> Lesson:
        """After the answer: keep what was counted, and learn from what was billed."""
        try:
            measuring.later(self._store, tenant, counted.fresh, self._kept())
            return self._learn(tenant, counted, usage) if usage is not None else Lesson()
        except Exception as failure:  # noqa: BLE001 - the client has its answer, and it stays one
            self._log_once("learn", failure)
            return Lesson()

    def _learn(self, tenant: bytes, counted: Counted, usage: Usage) -> Lesson:
        if counted.prompt is None or counted.known is None:
            return Lesson()
        # Others have been answered meanwhile: what they have taught must not be unlearned.
        factor = self._manner(counted.model).factor
        known = replace(
            counted.known,
            calibration=self._knowledge.calibration(counted.model, factor),
            opening=self._knowledge.opening(counted.model, counted.prompt),
        )
        lesson = anchors.lesson(counted.prompt, counted.count, known, usage, choices=counted.choices)
        self._knowledge.learn(tenant, counted.model, counted.prompt, lesson, counted.came)
        return lesson

    def _log_once(self, doing: str, failure: Exception) -> None:
        kind = type(failure).__name__
        if self._failures.first(f"{doing} {kind}"):
            # Neither the message nor the traceback's values: they may quote a conversation.
            log.warning("counting failed, going on without", doing=doing, kind=kind)


def _by_bytes(raw: bytes) -> Count:
    """A third of the bytes is more than most texts have tokens."""
    tokens = -(-_without_media(raw) // 3)
    return Count(tokens, round(_ROUGH_SHARE * tokens), Basis.ROUGH, 0, Estimate(tokens=tokens, rough=1))


def _without_media(raw: bytes) -> int:
    """Bit by bit: nothing else can run while a regular expression does."""
    starts = range(0, len(raw), _AT_A_TIME)
    return sum(len(without_media(raw[start : start + _AT_A_TIME].decode("latin-1"))) for start in starts)
