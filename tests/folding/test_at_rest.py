"""What a conversation leaves behind, looked at from outside: in the store's file or the server's dump, in the
logs, in the metrics.
"""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest

from proxy.simulator import Fault, Simulator
from tests.cli.command import eventually
from tests.folding.agent import Agent, prose, small
from tests.folding.processes import agent_at, proxying
from tests.simulator.talk import Message, user
from tests.store.servers import Server, server

KEY = "sk-canary-key-7f3a"
INSTRUCTIONS, SAID, RESULT, NAME = (f"canary-{what}-51c9" for what in ("rules", "said", "result", "name"))
TEXTS = [INSTRUCTIONS, SAID, RESULT, NAME]
SECRET = "a secret that all replicas have in common"
_SPACES = ("folds", "messages", "lanes", "counts", "anchors")
STORE = ("--store", "sqlite:///state.db", "--log-level", "debug")
OLD, NEW = (f"{name}:{base64.b64encode(name.encode() * 4).decode()}" for name in ("old-key1", "new-key2"))


def sealed_by(keys: str | None) -> dict[str, str]:
    return {"TAILFOLD_ENCRYPTION__KEYS": keys or ""}


@pytest.fixture
async def upstream() -> AsyncIterator[Simulator]:
    async with Simulator(small()) as simulator:
        yield simulator


async def talk(agent: Agent, turns: int) -> None:
    """A turn in three calls a tool."""
    for number in range(turns):
        call = "call:look " if number % 3 == 1 else ""
        text = f"{call}Turn {len(agent.messages)}: {SAID} {prose(number, 200)}"
        answer = await agent.say(text, result=f"{RESULT} {prose(number, 100)}")
        assert answer.status == 200


def begun() -> list[Message]:
    return [{"role": "system", "content": f"You look after the harbour. {INSTRUCTIONS}"}]


class Shelf(Protocol):
    """Where a conversation is kept, and what somebody finds there who has all of it."""

    @property
    def flags(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def spaces(self) -> Sequence[str]: ...

    def holds(self, space: str) -> bool: ...

    def content(self) -> bytes: ...


class File:
    flags = STORE
    env: Mapping[str, str] = {}
    spaces = (*_SPACES, "server")

    def __init__(self, home: Path) -> None:
        self._home = home

    def holds(self, space: str) -> bool:
        with closing(sqlite3.connect(f"file:{self._home}/state.db?mode=ro", uri=True)) as file:
            return bool(file.execute("SELECT count(*) FROM facts WHERE space = ?", (space,)).fetchone()[0])

    def content(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self._home.glob("state.db*")))


class Dump:
    env: Mapping[str, str] = {"TAILFOLD_SECRET": SECRET}
    spaces = _SPACES

    def __init__(self, valkey: Server) -> None:
        self._valkey = valkey
        self.flags = ("--store", valkey.url, "--log-level", "debug")
        valkey.client.config_set("rdbcompression", "no")  # or nothing would be found in any case

    def holds(self, space: str) -> bool:
        return bool(self._valkey.client.keys(f"tailfold:*:{space}:*"))

    def content(self) -> bytes:
        self._valkey.client.save()
        return b"".join(path.read_bytes() for path in self._valkey.folder.glob("*.rdb"))


@pytest.fixture(params=["file", "dump"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "file":
        yield File(tmp_path)
        return
    with server() as valkey:
        yield Dump(valkey)


async def left_behind(shelf: Shelf) -> bytes:
    """Of every kind something, so that there is something to look through."""
    for space in shelf.spaces:
        await asyncio.to_thread(eventually, partial(shelf.holds, space))
    return await asyncio.to_thread(shelf.content)


async def own_errors(upstream: Simulator, agent: Agent) -> str:
    """Answers to requests that go wrong in many ways, as far as they are ours."""
    told = ""
    headers = {"Authorization": f"Bearer {KEY}", "x-api-key": KEY, "X-Conversation-Id": NAME}
    bodies = [{"model": "gpt-4o", "messages": [user(SAID)], "stream": stream} for stream in (False, True)]
    for fault in [None, *Fault]:
        for path in (f"/v1/chat/completions?key={KEY}", f"/v1/echo?key={KEY}", f"/nowhere?key={KEY}"):
            for body in bodies:
                if fault is not None:
                    upstream.fail_next(fault)
                url = agent.base_url.removesuffix("/v1") + path
                try:
                    async with agent.session.post(url, json=body, headers=headers) as answer:
                        content = await answer.text()
                except aiohttp.ClientError:
                    continue  # broken off, as it has to be
                told += content if "tailfold_error" in content else ""
    assert told
    return told


@pytest.mark.parametrize("keys", [OLD, None], ids=["encrypted", "as it is"])
async def test_with_encryption_neither_key_nor_text_is_left_anywhere(
    upstream: Simulator, tmp_path: Path, shelf: Shelf, keys: str | None
) -> None:
    waiting = tmp_path / "my.yaml"
    waiting.write_text("timeouts: {idle: 0.2, first_byte: 0.5}\n")
    history = begun()
    async with (
        proxying(upstream, tmp_path, *shelf.flags, **sealed_by(keys), **shelf.env) as proxy,
        agent_at(proxy, history, KEY, **{"X-Conversation-Id": NAME}) as agent,
    ):
        await talk(agent, 24)
        assert {"fold", "reuse"} & {answer.action for answer in agent.answers}
        left = await left_behind(shelf)
        async with agent.session.get(f"{proxy.url}/metrics") as answer:
            told = await answer.text()
        assert "tailfold_folds_total" in told
        assert await asyncio.to_thread(proxy.end) == 0
    async with (
        proxying(
            upstream, tmp_path, *shelf.flags, "--config", str(waiting), **sealed_by(keys), **shelf.env
        ) as again,
        agent_at(again, []) as agent,
    ):
        told += await own_errors(upstream, agent)
        async with agent.session.get(f"{again.url}/metrics") as answer:
            told += await answer.text()
        left += shelf.content()
        assert await asyncio.to_thread(again.end) == 0
    left += shelf.content()
    logs = "".join(proxy.errors + again.errors)
    assert "fold_made" in logs
    for secret in [KEY, SECRET, *(keys or "").split(":")[1:]]:
        assert secret.encode() not in left
        assert secret not in told + logs
    for text in (INSTRUCTIONS, SAID, RESULT):
        assert text not in told + logs
    # The same search finds all of it where nothing is encrypted, so it would find it.
    assert {text for text in TEXTS if text.encode() in left} == (set() if keys else {*TEXTS})


async def test_folds_outlive_a_restart_and_a_rotation(upstream: Simulator, tmp_path: Path) -> None:
    history = begun()
    async with (
        proxying(upstream, tmp_path, *STORE, **sealed_by(OLD)) as proxy,
        agent_at(proxy, history) as agent,
    ):
        while not any(answer.action == "reuse" for answer in agent.answers):
            await talk(agent, 1)
        last = agent.answers[-1]
        await asyncio.to_thread(proxy.end)
    summaries = len(upstream.summary_calls())
    for keys in (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}"):
        async with (
            proxying(upstream, tmp_path, *STORE, **sealed_by(keys)) as proxy,
            agent_at(proxy, history[:-1]) as agent,
        ):
            again = await agent.send()
            assert (again.action, again.fold) == ("reuse", last.fold)
            await asyncio.to_thread(proxy.end)
    assert len(upstream.summary_calls()) == summaries


async def test_workers_share_what_is_encrypted(upstream: Simulator, tmp_path: Path) -> None:
    history = begun()
    async with proxying(upstream, tmp_path, *STORE, "--workers", "2", **sealed_by(OLD)) as proxy:
        for _ in range(30):
            # A connection of its own for every turn, so that the turns go to both.
            async with agent_at(proxy, history, KEY, **{"X-Conversation-Id": NAME}) as agent:
                await talk(agent, 1)
        left = await left_behind(File(tmp_path))
        assert await asyncio.to_thread(proxy.end) == 0
    assert "cannot be opened" not in "".join(proxy.errors)
    assert {text for text in TEXTS if text.encode() in left} == set()
