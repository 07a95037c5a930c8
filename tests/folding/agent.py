"""A client that talks through the proxy as agents do: it resends its whole history, and runs the tools that
it is asked to run.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from proxy.simulator import Simulator, SimulatorConfig
from tests.running import Running, running
from tests.simulator.talk import Message, tool, user

WINDOW = 8_000
MODEL = "gpt-4o"

WORDS = [
    "harbour",
    "lantern",
    "meadow",
    "copper",
    "window",
    "gravel",
    "silver",
    "thunder",
    "pocket",
    "ribbon",
    "saddle",
    "timber",
    "velvet",
    "walnut",
    "anchor",
    "basket",
    "candle",
    "dragon",
    "engine",
    "feather",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "magnet",
    "needle",
]


def prose(seed: int, words: int) -> str:
    """Different for every seed, and always the same for one."""
    return " ".join(WORDS[(seed * 7 + place * (seed % 5 + 3)) % len(WORDS)] for place in range(words)) + "."


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def action(self) -> str:
        return self.headers.get("X-Tailfold-Action", "")

    @property
    def fold(self) -> str | None:
        return self.headers.get("X-Tailfold-Fold")

    @property
    def warnings(self) -> list[str]:
        said = self.headers.get("X-Tailfold-Warning", "")
        return [warning.strip() for warning in said.split(",")] if said else []

    @property
    def message(self) -> Message:
        said: Message = self.body["choices"][0]["message"]
        kept = {"role": "assistant", "content": said["content"]}
        return kept | ({"tool_calls": said["tool_calls"]} if said.get("tool_calls") else {})

    @property
    def billed(self) -> int:
        return int(self.body["usage"]["prompt_tokens"])

    @property
    def cached(self) -> int:
        return int(self.body["usage"]["prompt_tokens_details"]["cached_tokens"])


@dataclass(slots=True)
class Agent:
    session: aiohttp.ClientSession
    base_url: str
    key: str = "sk-one"
    model: str = MODEL
    messages: list[Message] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=lambda: {"max_tokens": 100})
    headers: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    async def say(self, text: str, *, result: str = "done") -> Answer:
        """One turn: with `call:look` in it the simulator calls the tool, whose result this is then."""
        self.messages.append(user(text))
        answer = await self.step()
        while answer.status == 200 and answer.message.get("tool_calls"):
            self.run_tools(answer, result)
            answer = await self.step()
        return answer

    async def step(self) -> Answer:
        """Send the history as it is, and put the answer behind it."""
        answer = await self.send()
        self.answers.append(answer)
        if answer.status == 200:
            self.messages.append(answer.message)
        return answer

    def run_tools(self, answer: Answer, result: str) -> None:
        for call in answer.message["tool_calls"]:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def send(self, **headers: str) -> Answer:
        body = {"model": self.model, "messages": self.messages, **self.options}
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        url = f"{self.base_url}/chat/completions"
        async with self.session.post(
            url, data=orjson.dumps(body), headers={**sent, **self.headers, **headers}
        ) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.json())

    def copy(self) -> Agent:
        """A branch of the conversation."""
        return Agent(
            self.session,
            self.base_url,
            self.key,
            self.model,
            copy.deepcopy(self.messages),
            dict(self.options),
            dict(self.headers),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A provider with a small window, and Tailfold in front of it."""

    upstream: Simulator
    proxy: Running
    session: aiohttp.ClientSession

    def agent(self, *messages: Message, **fields: Any) -> Agent:
        return Agent(self.session, self.proxy.base_url, messages=[*messages], **fields)

    async def folded(self) -> None:
        """Wait until the folds that are being made are there."""
        await self.proxy.app.rooms.folded()

    def sent(self) -> list[list[Message]]:
        """The messages of every request that went on with a conversation."""
        return [received.json()["messages"] for received in self.upstream.chat_calls()]

    def refused(self) -> float:
        return self.proxy.metric("tailfold_overflows_total")


def small(window: int = WINDOW, **others: Any) -> SimulatorConfig:
    """A provider whose model has a small window; the one that writes summaries has the usual."""
    return SimulatorConfig(windows={MODEL: window}, **others)


@asynccontextmanager
async def stage(config: SimulatorConfig | None = None, **settings: Any) -> AsyncIterator[Stage]:
    settings = {"models": {MODEL: {"window": WINDOW}}, **settings}
    async with (
        Simulator(config or small()) as upstream,
        running(upstream.base_url, **settings) as proxy,
        aiohttp.ClientSession() as session,
    ):
        yield Stage(upstream, proxy, session)


def with_tools() -> dict[str, Any]:
    return {"max_tokens": 100, "tools": [tool("look")]}
