"""What outlives a request: the secret under which callers are named, and the vocabularies."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from proxy.app import Tailfold
from proxy.counting.tokenizer import Encodings, Tokenizer
from proxy.counting.vocabularies import DEFAULT, KNOWN
from proxy.rooms import Rooms
from proxy.settings import Settings
from proxy.simulator import Simulator
from proxy.tasks import Tasks
from tests.running import Running
from tests.simulator.talk import chat, user
from tests.store.doubles import PATIENCE

ENCODINGS = Encodings()


def conversation(text: str) -> dict[str, Any]:
    """So long that a process that has not seen it asks the store for its bills."""
    turn = (user(text), {"role": "assistant", "content": "I see."})
    return chat(*turn, *turn, user("Go on."))


class Life:
    """One life of a proxy, and a caller that always has the same key."""

    def __init__(self, proxy: Running, session: aiohttp.ClientSession) -> None:
        self._proxy = proxy
        self._session = session

    async def ask(self, text: str) -> bool:
        """Whether this very request is known from its bill, which only the same caller finds."""
        before = self._anchored()
        url, key = f"{self._proxy.base_url}/chat/completions", {"Authorization": "Bearer sk-test"}
        async with self._session.post(url, json=conversation(text), headers=key) as answer:
            assert answer.status == 200
            await answer.read()
        await self._proxy.app.edge.idle()
        return self._anchored() > before

    async def ask_until_it_is_back(self, lines: list[Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while "the store is back" not in [line["event"] for line in lines]:
                await self.ask("anybody there?")

    def _anchored(self) -> float:
        return self._proxy.metric("tailfold_counting_seconds_count", basis="anchored")


class World:
    """An upstream and a file, which outlive the proxy."""

    def __init__(self, upstream: Simulator, file: Path, session: aiohttp.ClientSession) -> None:
        self._upstream = upstream
        self._file = file
        self._session = session

    @asynccontextmanager
    async def life(self, **settings: Any) -> AsyncIterator[Life]:
        """A process that tries its store again without a pause, and is patient with a busy disk."""
        settings = {"store": f"sqlite:///{self._file}", "windows": {"ask": False}, **settings}
        made = Settings(upstream=self._upstream.base_url, **settings)
        app = Tailfold(made, ENCODINGS)
        app.rooms = Rooms(made, app.metrics, Tasks(), ENCODINGS, store_pause=0, store_time_limit=30)
        listening = socket.create_server(("127.0.0.1", 0))
        await app.start(listening)
        try:
            yield Life(Running(app, listening.getsockname()[1]), self._session)
        finally:
            await app.drain()

    def longest_kept(self) -> dict[str, float]:
        """Of each space, in seconds from now."""
        with closing(sqlite3.connect(self._file)) as file:
            rows = file.execute("SELECT space, max(expires) FROM facts GROUP BY space").fetchall()
        return {space: expires - time.time() for space, expires in rows if expires}

    @contextmanager
    def locked(self) -> Iterator[sqlite3.Connection]:
        """Until whoever holds the lock rolls back."""
        with closing(sqlite3.connect(self._file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield other


@pytest.fixture
async def world(upstream: Simulator, tmp_path: Path) -> AsyncIterator[World]:
    async with aiohttp.ClientSession() as session:
        yield World(upstream, tmp_path / "state.db", session)


async def test_a_caller_has_the_same_name_in_the_next_life(world: World) -> None:
    async with world.life() as first:
        assert not await first.ask("before")
    async with world.life() as second:
        assert await second.ask("before")


async def test_a_store_that_was_locked_at_the_start_gives_callers_their_names_back(world: World) -> None:
    async with world.life() as first:
        await first.ask("before")
    with capture_logs() as lines, world.locked() as other:
        async with world.life() as second:
            assert not await second.ask("in the dark")
            other.execute("ROLLBACK")
            await second.ask_until_it_is_back(lines)
            assert await second.ask("before")
            assert not await second.ask("after")
    async with world.life() as third:
        assert await third.ask("before")
        assert await third.ask("after")


async def test_a_store_that_was_locked_at_the_start_and_has_no_secret_is_given_ours(world: World) -> None:
    with capture_logs() as lines, world.locked() as other:
        async with world.life() as first:
            await first.ask("in the dark")
            other.execute("ROLLBACK")
            await first.ask_until_it_is_back(lines)
            await first.ask("after")
    async with world.life() as second:
        assert await second.ask("after")


async def test_with_a_secret_of_the_user_s_a_locked_store_changes_no_name(world: World) -> None:
    ours = {"secret": "0123456789abcdef0123456789abcdef"}
    async with world.life() as named_by_the_store:
        await named_by_the_store.ask("before")
    with capture_logs() as lines, world.locked() as other:
        async with world.life(**ours) as first:
            await first.ask("in the dark")
            other.execute("ROLLBACK")
            await first.ask_until_it_is_back(lines)
            assert not await first.ask("before")
    async with world.life(**ours) as second:
        assert await second.ask("before")


async def test_nothing_of_a_conversation_is_kept_for_longer_than_the_user_has_said(world: World) -> None:
    async with world.life(history={"ttl": 600.0}) as life:
        await life.ask("a word")
    kept = world.longest_kept()
    assert {"messages", "lanes", "counts", "anchors"} <= kept.keys()
    assert {space for space, seconds in kept.items() if seconds > 600} <= {"calibrations", "windows"}


class Watched(Encodings):
    """Remembers in what order it was asked to load, and says when all has been loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.all_there = threading.Event()

    def load(self, name: str) -> Tokenizer | None:
        loaded = super().load(name)
        if name not in self.names:
            self.names.append(name)
        if set(self.names) == set(KNOWN):
            self.all_there.set()
        return loaded


async def test_every_vocabulary_is_loaded_before_anybody_asks_for_it(upstream: Simulator) -> None:
    encodings = Watched()
    app = Tailfold(Settings(upstream=upstream.base_url, store="memory://"), encodings)
    await app.start(socket.create_server(("127.0.0.1", 0)))
    try:
        assert await asyncio.to_thread(encodings.all_there.wait, PATIENCE)
    finally:
        await app.drain()
    assert encodings.names[0] == DEFAULT
    assert all(encodings.ready(name) for name in KNOWN)
