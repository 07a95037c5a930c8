"""Small peers for counting: an encoding that remembers what it was asked, and requests in a few letters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.counting.anchors import Known
from proxy.counting.counter import LONGEST, Counted, Counter, Manner
from proxy.counting.framing import Scheme
from proxy.counting.knowledge import Knowledge
from proxy.counting.measuring import Limits, Measurement, Measurer
from proxy.counting.prompt import Prompt
from proxy.counting.recollection import Recollection
from proxy.counting.tokenizer import Encodings, Tokenizer
from proxy.messages import ChatRequest, read
from proxy.ports import Space, Store
from proxy.store.memory import MemoryStore
from proxy.store.writing import KEPT, LateWriter
from proxy.tasks import Tasks

ALICE, BOB = b"a" * 16, b"b" * 16
SPEAKERS = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


class Letters:
    """An encoding with a token per character, which remembers every text it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.texts.append(text)
        return [ord(letter) for letter in text]


class Broken(Letters):
    def encode_ordinary(self, text: str) -> list[int]:
        raise ValueError(text)


class Loaded(Encodings):
    """Any name is this encoding, and it is there from the start."""

    def __init__(self, encoding: Letters) -> None:
        super().__init__()
        self._tokenizer = Tokenizer(encoding)

    def ready(self, name: str) -> Tokenizer | None:
        return self._tokenizer

    def load(self, name: str) -> Tokenizer | None:
        return self._tokenizer


class Loading(Loaded):
    """One that is there as soon as its disk has been let go on."""

    def __init__(self, encoding: Letters) -> None:
        super().__init__(encoding)
        self.loads = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.there = threading.Event()

    def ready(self, name: str) -> Tokenizer | None:
        return self._tokenizer if self.there.is_set() else None

    def load(self, name: str) -> Tokenizer | None:
        self.loads += 1
        self.begun.set()
        self.go_on.wait()
        self.there.set()
        return self._tokenizer


class Missing(Encodings):
    """One whose file is not to be had."""

    def ready(self, name: str) -> Tokenizer | None:
        return None

    def load(self, name: str) -> Tokenizer | None:
        return None


class Hanging(MemoryStore):
    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        await asyncio.Event().wait()
        return {}


@dataclass
class Life:
    """One life of the process: what is in memory ends with it, what is in the store does not."""

    measurer: Measurer
    knowledge: Knowledge
    counter: Counter
    writer: LateWriter
    recollection: Recollection
    tasks: Tasks = field(default_factory=Tasks)

    async def count(self, tenant: bytes, chat: ChatRequest) -> Counted:
        """With all that the store knows of it."""
        if (split := await self.counter.split(tenant, chat)) is not None:
            await asyncio.gather(*self.counter.recalling(chat, split))
        return await self.counter.count(chat, split)

    async def measure(self, tenant: bytes, chat: ChatRequest, scheme: Scheme) -> Measurement:
        split = await self.measurer.split(tenant, chat, scheme)
        if (question := self.measurer.recalling(split)) is not None:
            await question
        return await self.measurer.measure(split)

    async def known(self, tenant: bytes, model: str, prompt: Prompt, factor: float) -> Known:
        await asyncio.gather(*self.knowledge.recalling(tenant, model, prompt))
        return self.knowledge.known(model, prompt, factor)


@asynccontextmanager
async def life(
    store: Store | None = None,
    encodings: Encodings | None = None,
    *,
    upstream: str = "http://one/v1",
    manner: Manner | None = None,
    limits: Limits | None = None,
    longest: float = LONGEST,
    most_bytes: int = 10_000_000,
    kept: float = KEPT,
) -> AsyncIterator[Life]:
    tasks = Tasks()
    writer = LateWriter(store or MemoryStore(), tasks)
    recollection = Recollection(most_bytes)
    with ThreadPoolExecutor(2) as pool:
        measurer = Measurer(
            encodings or Loaded(Letters()), recollection, writer, pool, limits=limits or Limits()
        )
        knowledge = Knowledge(upstream, writer, kept=lambda: kept)
        said = manner or Manner()
        counter = Counter(measurer, knowledge, writer, lambda _model: said, longest=longest)
        yield Life(measurer, knowledge, counter, writer, recollection, tasks)
        await writer.drain(60)
        await tasks.close(60)


def message(letter: str, content: Any) -> dict[str, Any]:
    return {"role": SPEAKERS[letter], "content": content}


def talk(letters: str) -> list[dict[str, Any]]:
    """`s u a u` is a conversation of four messages, each of which says something else."""
    return [message(letter, f"{letter} says number {at}") for at, letter in enumerate(letters.split())]


def asked(messages: object, **fields: object) -> ChatRequest:
    return read(orjson.dumps({"model": "m", "messages": messages, **fields}), compressed=False)
