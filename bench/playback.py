"""Recorded conversations, turn by turn through the proxy to a simulated provider, each in its own window."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
import structlog
from aiohttp import ClientSession

from bench.processes import BenchmarkFailed
from bench.prompts import Prompt, Ruler, SummaryCall
from bench.traces import Conversation
from proxy.app import Tailfold
from proxy.budget import Budget, Policy, Window, budget
from proxy.settings import Settings
from proxy.simulator import ReceivedRequest, Simulator, SimulatorConfig
from proxy.simulator.answers import ApiError
from proxy.simulator.chat import Chat
from proxy.simulator.summaries import SummaryModel, asks_for_a_summary
from proxy.simulator.tokens import TiktokenCounter
from proxy.simulator.validate import validated

ANSWER = 256  # max_tokens of every request
FLOOR = 2_000  # a smaller window is none that anybody has

SUMMARIZER = "replayed-summarizer"
SUMMARIZER_WINDOW = 128_000

UNREAD = 10_000  # requests that the simulator may receive before they are looked at

ACTION, FOLD = "X-Tailfold-Action", "X-Tailfold-Fold"
TOKENS, ORIGINAL_TOKENS = "X-Tailfold-Tokens", "X-Tailfold-Original-Tokens"


@dataclass(frozen=True)
class Case:
    """A conversation that is to be replayed in a window."""

    kind: str
    share: float
    number: int
    conversation: Conversation
    prompts: tuple[Prompt, ...]  # what the client sends, turn by turn

    @property
    def model(self) -> str:
        """A name for each, as a window belongs to a model."""
        return f"replayed-{self.kind}-{self.number}-{round(100 * self.share)}"

    @property
    def credential(self) -> str:
        """A caller for each: the provider's cache and all that Tailfold knows is the caller's."""
        return f"sk-{self.model}"

    @cached_property
    def window(self) -> int:
        """Instructions and tools, the share of everything else that is ever sent, and the answer."""
        longest = self.prompts[-1]
        fixed = longest.opening + sum(piece.tokens for piece in longest.pieces if piece.is_system)
        return max(FLOOR, fixed + round(self.share * (longest.tokens - fixed)) + ANSWER)

    @property
    def budget(self) -> Budget:
        return budget(Window(self.window), ANSWER, Policy())

    def body(self, prompt: Prompt) -> dict[str, Any]:
        return request_body(self.conversation, len(prompt.pieces), self.model)

    def fits_at_all(self, prompt: Prompt) -> bool:
        """False: no fold could have helped."""
        return prompt.must_be_kept() + ANSWER <= self.window


def request_body(conversation: Conversation, length: int, model: str) -> dict[str, Any]:
    body = {"model": model, "messages": conversation.messages[:length], "max_tokens": ANSWER}
    return body | ({"tools": conversation.tools} if conversation.tools else {})


def cases(
    kinds: Mapping[str, Sequence[Conversation]], shares: Sequence[float], most_turns: int | None
) -> list[Case]:
    """Of the conversations that a provider takes at all; of each at most the first so many turns."""
    ruler = Ruler()
    found = []
    for kind, conversations in kinds.items():
        for number, conversation in enumerate(conversations):
            if is_accepted(conversation, most_turns):
                prompts = tuple(_prompts(conversation, ruler, most_turns))
                found += [Case(kind, share, number, conversation, prompts) for share in shares]
    return found


def _prompts(conversation: Conversation, ruler: Ruler, most_turns: int | None) -> Iterator[Prompt]:
    opening = ruler.opening(conversation.tools)
    lengths = conversation.turns()[:most_turns]
    pieces = [ruler.piece(message) for message in conversation.messages[: lengths[-1]]]
    return (Prompt(opening, tuple(pieces[:length])) for length in lengths)


def is_accepted(conversation: Conversation, most_turns: int | None) -> bool:
    """Whether its requests are well-formed: what is refused in any window says nothing about folding."""
    lengths = conversation.turns()[:most_turns]
    try:
        for length in lengths:
            validated(request_body(conversation, length, "any"), SimulatorConfig())
    except ApiError:
        return False
    return bool(lengths)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a client's, and what became of it."""

    received: Prompt
    sent: Prompt | None  # as the provider answered it; None where the client got no answer
    status: int
    error: str = ""
    actions: tuple[str, ...] = ()
    fold: str = ""
    announced: int | None = None  # tokens received, as the proxy counted them
    billed: int = 0
    billed_cached: int = 0
    attempts: int = 1  # requests that reached the provider for it


@dataclass(frozen=True, slots=True)
class Replayed:
    case: Case
    turns: tuple[Turn, ...]
    summaries: tuple[SummaryCall, ...]

    @property
    def answered(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.sent is not None]

    @property
    def sent(self) -> list[Prompt]:
        return [turn.sent for turn in self.turns if turn.sent is not None]

    @property
    def refused(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.sent is None]

    def avoidable(self) -> list[Turn]:
        """Refusals that a client should never have seen."""
        return [one for one in self.refused if one.status != 400 or self.case.fits_at_all(one.received)]

    def folds(self) -> Counter[str]:
        """How each fold that was used was made: what the request was told that used it first."""
        seen: set[str] = set()
        made: Counter[str] = Counter()
        for turn in self.turns:
            if turn.fold and turn.fold not in seen:
                seen.add(turn.fold)
                made[_manner(turn.actions)] += 1
        return made


def _manner(actions: Sequence[str]) -> str:
    """One that was made in the background is met as `reuse`, which does not say how it was made."""
    return next((action for action in actions if action in ("fold", "extract", "truncate")), "reuse")


class Ledger:
    """What reached the provider, by caller."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._ruler = Ruler()
        # The answers are not recorded; but asked again, the simulator says the same.
        counter = TiktokenCounter()
        self._chat = Chat(simulator.config, counter, SummaryModel(simulator.config, counter))
        self._sent: dict[str, list[Prompt]] = {}
        self._summaries: dict[str, list[SummaryCall]] = {}

    def take_sent(self, credential: str) -> list[Prompt]:
        """What was sent for this caller since the last time it was asked."""
        self._read()
        return self._sent.pop(credential, [])

    def summaries(self, credential: str) -> list[SummaryCall]:
        self._read()
        return self._summaries.get(credential, [])

    def _read(self) -> None:
        for received in self._simulator.requests:
            if not received.route.endswith("/chat/completions"):
                continue
            body = received.json()
            if asks_for_a_summary(body["messages"]):
                self._summaries.setdefault(received.credential, []).extend(self._summary(received))
            else:
                self._sent.setdefault(received.credential, []).append(self._ruler.prompt(body))
        self._simulator.forget_requests()

    def _summary(self, received: ReceivedRequest) -> Iterator[SummaryCall]:
        answer = self._chat.answer(received)
        if answer.status != 200:
            return  # one that is refused costs nothing
        usage = orjson.loads(b"".join(answer.pieces))["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        yield SummaryCall(usage["prompt_tokens"], usage["completion_tokens"], cached)


class Replay:
    """Clients that send what was recorded, some at once, each turn a moment after the answer to the last."""

    def __init__(self, session: ClientSession, origin: str, simulator: Simulator, pause: float) -> None:
        self._session = session
        self._url = f"{origin}/v1/chat/completions"
        self._ledger = Ledger(simulator)
        self._pause = pause

    async def run(self, case: Case) -> Replayed:
        turns = []
        for prompt in case.prompts:
            turns.append(await self._turn(case, prompt))
            await asyncio.sleep(self._pause)  # the time of a fold in the background
        return Replayed(case, tuple(turns), tuple(self._ledger.summaries(case.credential)))

    async def _turn(self, case: Case, prompt: Prompt) -> Turn:
        headers = {"Authorization": f"Bearer {case.credential}", "Content-Type": "application/json"}
        body = orjson.dumps(case.body(prompt))
        async with self._session.post(self._url, data=body, headers=headers) as response:
            answer = orjson.loads(await response.read())
            sent = self._ledger.take_sent(case.credential)
            return surely(turn_of(prompt, sent, response.status, response.headers, answer))


def surely(turn: Turn) -> Turn:
    """If the provider billed otherwise than we measure, everything computed here would be wrong."""
    if turn.sent is not None and turn.sent.tokens != turn.billed:
        raise BenchmarkFailed(f"{turn.billed} tokens were billed for {turn.sent.tokens}")
    return turn


def turn_of(
    received: Prompt, sent: Sequence[Prompt], status: int, headers: Mapping[str, str], answer: dict[str, Any]
) -> Turn:
    announced = headers.get(ORIGINAL_TOKENS) or headers.get(TOKENS)
    usage = answer.get("usage") or {}
    return Turn(
        received,
        sent[-1] if status == 200 else None,
        status,
        error=str((answer.get("error") or {}).get("message", "")),
        actions=tuple(action.strip() for action in headers.get(ACTION, "").split(",") if action.strip()),
        fold=headers.get(FOLD, ""),
        announced=int(announced) if announced else None,
        billed=usage.get("prompt_tokens", 0),
        billed_cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        attempts=len(sent),
    )


async def replay(several: Sequence[Case], *, at_once: int, pause: float) -> list[Replayed]:
    async with replaying(several, pause) as clients:
        free = asyncio.Semaphore(at_once)

        async def run(case: Case) -> Replayed:
            async with free:
                return await clients.run(case)

        return await asyncio.gather(*map(run, several))


@asynccontextmanager
async def replaying(several: Sequence[Case], pause: float) -> AsyncIterator[Replay]:
    windows = {case.model: case.window for case in several}
    async with (
        Simulator(SimulatorConfig(windows=windows, recorded_requests=UNREAD)) as simulator,
        _proxy(simulator.base_url, windows) as origin,
        ClientSession() as session,
    ):
        yield Replay(session, origin, simulator, pause)


@asynccontextmanager
async def _proxy(upstream: str, windows: Mapping[str, int]) -> AsyncIterator[str]:
    """Tailfold as it is by default, but for what it is told of models and who writes the summaries."""
    models = {model: {"window": window} for model, window in windows.items()}
    settings: dict[str, Any] = {
        "upstream": upstream,
        "store": "memory://",
        "models": models | {SUMMARIZER: {"window": SUMMARIZER_WINDOW}},
        "summarizer": {"model": SUMMARIZER, "via": "upstream"},
        "windows": {"ask": False},
        "timeouts": {"drain": 5.0},
    }
    async with serving(**settings) as (_, origin):
        yield origin


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[Tailfold, str]]:
    """A Tailfold in this process, and where it is."""
    app = Tailfold(Settings(**settings))
    listening = socket.create_server(("127.0.0.1", 0))
    await app.start(listening)
    try:
        yield app, f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await app.drain()


def quiet() -> None:
    """Thousands of requests, each with a line in the log, would bury the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
