"""Recorded conversations sent through the proxy's own counter: each count beside what was billed for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from bench.processes import BenchmarkFailed
from bench.traces import Conversation, Request
from proxy import messages
from proxy.counting import anchors
from proxy.counting.anchors import Basis, Count, Known
from proxy.counting.calibration import first_calibration
from proxy.counting.counter import Counted, Counter, Manner
from proxy.counting.knowledge import Knowledge
from proxy.counting.measuring import Measurer
from proxy.counting.prompt import Prompt
from proxy.counting.recollection import Recollection
from proxy.counting.tokenizer import Encodings
from proxy.counting.vocabularies import DEFAULT
from proxy.sizing import manner_of
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.windows.model_map import ModelMap

TENANT = bytes(16)
RECOLLECTED = 64 * 1024**2


@cache
def shipped_models() -> ModelMap:
    models = ModelMap({})
    models.load()
    return models


def manner(model: str) -> Manner:
    """What the shipped map knows of a model before its first bill."""
    return manner_of(shipped_models().look_up(model).facts)


class Parts:
    """All that a counter stands on. A new counter on the same store is a process that was started again."""

    def __init__(self, store: LateWriter, pool: ThreadPoolExecutor, encodings: Encodings) -> None:
        self.store = store
        self._pool = pool
        self._encodings = encodings

    def counter(self) -> Counter:
        measurer = Measurer(self._encodings, Recollection(RECOLLECTED), self.store, self._pool)
        knowledge = Knowledge("https://upstream.example/v1", self.store)
        return Counter(measurer, knowledge, self.store, manner)


@asynccontextmanager
async def counting_parts() -> AsyncIterator[Parts]:
    """With the tokenizer loaded, as it is a moment after the start, and nothing learned."""
    encodings, tasks = Encodings(), Tasks()
    encodings.load(DEFAULT)
    with ThreadPoolExecutor(2) as pool:
        yield Parts(LateWriter(MemoryStore(), tasks), pool, encodings)
        await tasks.close(timeout=10)


@dataclass(frozen=True, slots=True)
class Observation:
    """One request: what was counted before it was sent, and what was billed."""

    conversation: Conversation
    number: int  # in its conversation, from 0
    count: Count
    cold: Count  # the same, had nothing been learned
    plain: int  # our encoding's tokens, taken at face value
    billed: int

    @property
    def error(self) -> float:
        return abs(self.count.tokens - self.billed) / self.billed

    @property
    def cold_error(self) -> float:
        return abs(self.cold.tokens - self.billed) / self.billed

    @property
    def plain_error(self) -> float:
        return abs(self.plain - self.billed) / self.billed

    @property
    def within(self) -> bool:
        return abs(self.count.tokens - self.billed) <= self.count.uncertainty


async def replay(conversations: Iterable[Conversation]) -> list[Observation]:
    """One conversation after the other, every request learned from; begun with nothing learned."""
    async with counting_parts() as parts:
        counter = parts.counter()
        return [
            await _observed(counter, conversation, number, request)
            for conversation in conversations
            for number, request in enumerate(conversation.requests())
        ]


def surely(counted: Counted) -> Prompt:
    """A counter that fails still answers, quickly and roughly: there are no figures with failures in them."""
    if counted.prompt is None or counted.count.basis is Basis.ROUGH:
        raise BenchmarkFailed("a request could not be counted")
    return counted.prompt


async def count(counter: Counter, body: bytes) -> Counted:
    """As a request is counted, with all that the store knows of it."""
    chat = messages.read(body, compressed=False)
    if (split := await counter.split(TENANT, chat)) is not None:
        await asyncio.gather(*counter.recalling(chat, split))
    return await counter.count(chat, split)


async def _observed(
    counter: Counter, conversation: Conversation, number: int, request: Request
) -> Observation:
    counted = await count(counter, request.body)
    prompt = surely(counted)
    cold = anchors.count(prompt, Known(first_calibration(manner(conversation.model).factor)))
    counter.record(TENANT, counted, request.bill)
    plain = prompt.estimate.plain
    return Observation(conversation, number, counted.count, cold, plain, request.bill.prompt)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good the counts were, as shares of the bill."""

    requests: int
    later: int  # of them, those after the first of their conversation
    plain: float  # every request at our encoding's face value
    cold_first: float  # the first of every conversation, nothing learned
    cold: float  # every request, nothing learned
    cold_growth: float  # from the first to the last request of a conversation, as a share of the growth
    opening: float | None  # the first of a conversation, once another with the same instructions was billed
    mean: float  # of those after the first of their conversation
    p99: float
    most: float
    within: float  # how many of these were within the count's own uncertainty …
    uncertainty: float  # … and how large that was


def accuracy(observed: Sequence[Observation]) -> Accuracy:
    first = [one for one in observed if one.number == 0]
    later = [one for one in observed if one.number > 0]
    errors = sorted(one.error for one in later)
    opened = [one.error for one in first if one.count.basis is Basis.OPENING]
    return Accuracy(
        requests=len(observed),
        later=len(later),
        plain=fmean(one.plain_error for one in observed),
        cold_first=fmean(one.cold_error for one in first),
        cold=fmean(one.cold_error for one in observed),
        cold_growth=fmean(_growth_errors(observed)),
        opening=fmean(opened) if opened else None,
        mean=fmean(errors),
        p99=errors[int(0.99 * len(errors))],
        most=errors[-1],
        within=fmean(one.within for one in later),
        uncertainty=fmean(one.count.uncertainty / one.billed for one in later),
    )


def _growth_errors(observed: Sequence[Observation]) -> Iterable[float]:
    """What the text alone is worth: whatever stands before both requests, recorded or not, falls out."""
    for first, last in _ends(observed):
        if (growth := last.billed - first.billed) > 0:
            yield abs(last.cold.tokens - first.cold.tokens - growth) / growth


def _ends(observed: Sequence[Observation]) -> Iterable[tuple[Observation, Observation]]:
    firsts = [index for index, one in enumerate(observed) if one.number == 0]
    for begin, end in zip(firsts, [*firsts[1:], len(observed)], strict=True):
        yield observed[begin], observed[end - 1]
