"""The real command with a conversation in front of it and, in the test's own loop, a provider behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from proxy.simulator import Simulator
from tests.cli.command import Serving, serving
from tests.folding.agent import Agent, with_tools
from tests.simulator.talk import Message

_MODELS = '{"gpt-4o": {"window": 8000}}'


@asynccontextmanager
async def proxying(upstream: Simulator, home: Path, *flags: str, **env: str) -> AsyncIterator[Serving]:
    """Leaving it is left to a thread, as this loop plays the upstream. Empty variables count as not set."""
    given = ("--upstream", upstream.base_url, *flags)
    running = serving(*given, home=home, env={"TAILFOLD_MODELS": _MODELS, **env})
    proxy = await asyncio.to_thread(running.__enter__)
    try:
        yield proxy
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


@asynccontextmanager
async def agent_at(
    proxy: Serving, messages: list[Message], key: str = "sk-one", **headers: str
) -> AsyncIterator[Agent]:
    url = f"{proxy.url}/v1"
    async with aiohttp.ClientSession() as session:
        yield Agent(session, url, key, messages=messages, options=with_tools(), headers=headers)
