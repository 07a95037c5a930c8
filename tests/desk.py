"""Requests as the rooms behind counting get them: measured, told apart, and with the lane that they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proxy.conversation import Conversation
from proxy.histories import Histories, Line, line_of
from proxy.lanes import Found, Lanes
from proxy.messages import ChatRequest
from proxy.ports import Store
from proxy.request import Request, Wishes
from proxy.settings.sections import Compression
from proxy.sizing import Shares, Sized, Sizing
from proxy.store.memory import MemoryStore
from proxy.store.writing import LateWriter
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.learned import LearnedWindows
from proxy.windows.resolve import Silence, Windows
from tests.counting.peers import ALICE, Letters, Life, Loaded, asked, life

MONTH = 30 * 24 * 3600.0
USUAL = Compression()
NO_WISHES = Wishes()


class Models:
    """Every model has these facts, by the user's own word."""

    def __init__(self, facts: ModelFacts) -> None:
        origins = {"window": Origin.SETTING} if facts.window else {}
        self._known = KnownModel(facts, origins)

    def look_up(self, _name: str) -> KnownModel:
        return self._known


@dataclass
class Desk:
    """One life of the process."""

    life: Life
    store: Store
    sizing: Sizing
    histories: Histories
    lanes: Lanes

    @property
    def writer(self) -> LateWriter:
        return self.life.writer

    async def line(self, messages: object, tenant: bytes = ALICE) -> Line:
        line = await self.maybe_line(asked(messages), tenant)
        assert line is not None
        return line

    async def maybe_line(self, chat: ChatRequest, tenant: bytes = ALICE) -> Line | None:
        sized = await self.sized(chat, tenant)
        assert sized.counted.measured is not None
        told = await self.histories.told(tenant, sized.counted.measured)
        return line_of(told, sized.counted.measured) if told is not None else None

    async def sized(self, chat: ChatRequest, tenant: bytes = ALICE, threshold: float | None = None) -> Sized:
        """With all that the store knows of it."""
        split = await self.sizing.split(tenant, chat)
        await asyncio.gather(*self.sizing.recalling(tenant, chat, split))
        return await self.sizing.size(tenant, chat, split, threshold)

    async def find(self, line: Line, conversation: str = "c", tenant: bytes = ALICE) -> Found:
        return await self.find_called(called(conversation), line, tenant)

    async def find_called(self, conversation: Conversation, line: Line, tenant: bytes = ALICE) -> Found:
        if (question := self.lanes.recalling(tenant, conversation, line)) is not None:
            await question
        return self.lanes.find(conversation, line)

    async def request(
        self,
        messages: object,
        *,
        wishes: Wishes = NO_WISHES,
        conversation: str = "c",
        tenant: bytes = ALICE,
        **fields: object,
    ) -> Request:
        return await self.request_of(asked(messages, **fields), wishes, conversation, tenant)

    async def request_of(
        self, chat: ChatRequest, wishes: Wishes = NO_WISHES, conversation: str = "c", tenant: bytes = ALICE
    ) -> Request:
        sized = await self.sized(chat, tenant, wishes.threshold)
        assert sized.counted.measured is not None
        told = await self.histories.told(tenant, sized.counted.measured)
        assert told is not None
        line = line_of(told, sized.counted.measured)
        found = await self.find(line, conversation, tenant)
        return Request(chat, tenant, sized, called(conversation), wishes, [], b"", line, found)


class Quarters(Letters):
    """An encoding with a token for four characters, as most texts have."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0] * -(-len(text) // 4)


@asynccontextmanager
async def desk(
    store: Store | None = None,
    *,
    window: int | None = 8_000,
    facts: ModelFacts | None = None,
    encoding: Letters | None = None,
) -> AsyncIterator[Desk]:
    shelf = store or MemoryStore()
    models_read = asyncio.Event()
    models_read.set()
    async with life(shelf, Loaded(encoding or Letters())) as one:
        models = Models(facts or ModelFacts(window=window))
        windows = Windows(models, Silence(), LearnedWindows("http://one/v1", one.writer))
        sizing = Sizing(one.counter, windows, Shares(None, USUAL.soft_ratio, USUAL.margin), models_read)
        lanes = Lanes(one.writer, ttl=lambda: MONTH, clock=lambda: 1.0)
        with ThreadPoolExecutor(1) as pool:
            yield Desk(one, shelf, sizing, Histories(pool), lanes)


def called(name: str) -> Conversation:
    return Conversation(name, "header")


def said(*texts: str, first: str = "user") -> list[dict[str, Any]]:
    """User and assistant in turn, the user first."""
    return [{"role": role, "content": text} for role, text in zip(_turns(first), texts, strict=False)]


def _turns(first: str) -> Iterable[str]:
    other = "assistant" if first == "user" else "user"
    while True:
        yield first
        yield other


def results(*texts: str, about: str = "look") -> list[dict[str, Any]]:
    """An assistant that calls as often as there are results, and these."""
    ids = [f"call_{number}" for number in range(len(texts))]
    calls = [{"id": id, "type": "function", "function": {"name": about, "arguments": "{}"}} for id in ids]
    answers = [
        {"role": "tool", "tool_call_id": id, "content": text} for id, text in zip(ids, texts, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *answers]
