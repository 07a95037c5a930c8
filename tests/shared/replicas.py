"""Several Tailfolds in front of one provider and on one Valkey, and a wire between that can be watched."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from proxy.simulator import Simulator, SimulatorConfig
from tests.folding.agent import MODEL, WINDOW, Agent, Answer, prose, small, with_tools
from tests.running import Running, running
from tests.simulator.talk import Message
from tests.store.servers import PATIENCE

SECRET = "a secret that all replicas have in common"
SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}


@dataclass(slots=True)
class Wire:
    """Between a replica and its store: it counts the questions, can be cut, and can hold up what is large."""

    port: int
    questions: int = 0
    whole: bool = True
    cuts: int = 0  # so many questions are met by hanging up
    most_at_once: int | None = None  # bytes of a connection that pass while the gate is shut
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    tls: ssl.SSLContext | None = None  # of the end that is turned to the replica
    _server: asyncio.Server | None = None
    _ends: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"redis{'s' if self.tls else ''}://127.0.0.1:{self.near_port}/0"

    @property
    def near_port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0, ssl=self.tls)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.gate.set()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        self.whole = False
        for end in self._ends:
            end.transport.abort()  # closed politely, it would wait for a frozen server to take the rest

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.whole:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        self._ends |= {writer, back}
        for work in (self._carry(reader, back, counts=True), self._carry(there, writer, counts=False)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool
    ) -> None:
        passed = 0
        try:
            while data := await reader.read(2**16):
                self.questions += counts
                if counts and self.cuts:
                    self.cuts -= 1
                    break
                passed += len(data)
                if counts and self.most_at_once is not None and passed > self.most_at_once:
                    await self.gate.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # either end may leave
        finally:
            self._ends.discard(writer)
            writer.close()


@dataclass(frozen=True, slots=True)
class Replicas:
    upstream: Simulator
    proxies: Sequence[Running]
    session: aiohttp.ClientSession

    def agent(self, *messages: Message, at: int = 0, **fields: Any) -> Agent:
        fields = {"options": with_tools(), **fields}
        return Agent(self.session, self.proxies[at].base_url, messages=[*messages], **fields)

    async def settled(self) -> None:
        """What one has learned is there before another is asked."""
        for proxy in self.proxies:
            await proxy.app.rooms.folded()
            await proxy.app.rooms.written()

    async def talk(self, agent: Agent, first: int, last: int) -> list[Answer]:
        """Turn by turn to another replica, as a load balancer does."""
        said = len(agent.answers)
        for number in range(first, last):
            agent.base_url = self.proxies[number % len(self.proxies)].base_url
            call = "call:look " if number % 3 == 1 else ""
            await agent.say(f"{call}Turn {number}: {prose(number, 200)}", result=prose(number, 100))
            await self.settled()
        return agent.answers[said:]

    def bodies(self) -> list[bytes]:
        return [received.body for received in self.upstream.chat_calls()]

    def metric(self, name: str, **labels: str) -> float:
        return sum(proxy.metric(name, **labels) for proxy in self.proxies)


@asynccontextmanager
async def replicas(
    *urls: str, config: SimulatorConfig | None = None, patient: bool = True, **settings: Any
) -> AsyncIterator[Replicas]:
    """One for each URL of a store. Those that are not patient go on without it as soon as users' do."""
    settings = {
        "store_time_limit": PATIENCE if patient else None,
        "models": {MODEL: {"window": WINDOW}},
        "secret": SECRET,
        "redis": {"pause": 1.0},
        **settings,
    }
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(Simulator(config or small()))
        proxies = [
            await stack.enter_async_context(running(upstream.base_url, store=url, **settings)) for url in urls
        ]
        yield Replicas(upstream, proxies, await stack.enter_async_context(aiohttp.ClientSession()))


@asynccontextmanager
async def wire(port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    one = Wire(port, tls=tls)
    await one.start()
    try:
        yield one
    finally:
        await one.close()
