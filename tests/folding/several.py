"""Proxies in front of one provider, and a client that trims its history before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from proxy.simulator import Simulator, SimulatorConfig
from tests.folding.agent import MODEL, Agent, Answer, small
from tests.folding.trimmers import Client
from tests.running import Running, running
from tests.simulator.talk import Message, assistant, user

SECRET = "a secret that all have in common"


async def window_for(client: Client, full: str) -> int:
    """In which the client's requests are so full."""
    async with (
        Simulator(SimulatorConfig(windows={MODEL: 10**6})) as upstream,
        aiohttp.ClientSession() as session,
    ):
        tokens = (await Agent(session, upstream.base_url, messages=client.requests[15]).send()).billed
    hard = tokens / {"soft": 0.9, "hard": 1.04, "over": 1.6}[full]
    return int((hard / 0.95 + 100) / 0.95)


@dataclass(slots=True)
class Several:
    """Proxies in front of one provider, and what was answered."""

    upstream: Simulator
    proxies: Sequence[Running]
    session: aiohttp.ClientSession
    answers: list[Answer] = field(default_factory=list)

    async def sent(
        self, messages: Sequence[Message], at: int, headers: Mapping[str, str], **options: Any
    ) -> None:
        proxy = self.proxies[at % len(self.proxies)]
        agent = Agent(self.session, proxy.base_url, messages=[*messages], headers={**headers})
        agent.options |= options
        self.answers.append(await agent.send())

    async def settled(self) -> None:
        for proxy in self.proxies:
            await proxy.app.rooms.folded()
            await proxy.app.rooms.written()

    def summaries(self) -> int:
        return len(self.upstream.summary_calls())


@asynccontextmanager
async def several(window: int, *stores: str, **settings: Any) -> AsyncIterator[Several]:
    """A proxy for each URL of a store."""
    settings = {"models": {MODEL: {"window": window}}, "secret": SECRET, **settings}
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Simulator(small(window)))
        proxies = [
            await stack.enter_async_context(running(upstream.base_url, store=store, **settings))
            for store in stores
        ]
        yield Several(upstream, proxies, await stack.enter_async_context(aiohttp.ClientSession()))


async def trimmed(
    on: Several, client: Client, headers: Mapping[str, str], *, twice: bool = False, **options: Any
) -> int:
    """All that the client sends, and how many summaries were asked for since it has begun to trim."""
    before = 0
    for turn, messages in enumerate(client.requests):
        if turn == client.trims_from:
            before = on.summaries()
        asked = [on.sent(messages, turn, headers, **options)]
        if twice:
            beside = [*messages, assistant("Yes."), user("Suggest what I could ask next.")]
            asked.append(on.sent(beside, turn + 1, headers, **options))
        await asyncio.gather(*asked)
        await on.settled()
    assert {answer.status for answer in on.answers} == {200}
    return on.summaries() - before
