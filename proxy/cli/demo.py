"""`tailfold demo`: a long conversation through Tailfold, with a simulated provider behind it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from proxy.cli import addresses
from proxy.cli.banner import wants_colour
from proxy.cli.demo_display import Display
from proxy.cli.demo_figures import Step, Totals, Turn
from proxy.cli.demo_work import SYSTEM, TOOLS, Message, Work
from proxy.settings import Settings
from proxy.settings.sections import Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from proxy.simulator import Simulator

_MODEL = "gpt-4o"
_HOST = "127.0.0.1"
_PAUSE = 0.2


@click.command()
@click.option("--turns", type=click.IntRange(1), default=40, show_default=True, help="Questions of the user.")
@click.option(
    "--window", type=click.IntRange(1), default=8000, show_default=True, help="The model's window in tokens."
)
@click.option("--fast", is_flag=True, help="No pause between two turns.")
@click.option("--json", "as_json", is_flag=True, help="Nothing but the totals, as JSON.")
def demo(turns: int, window: int, fast: bool, as_json: bool) -> None:
    """Watch a long conversation stay inside a small window.

    Starts a simulated provider and a Tailfold in front of it, both on free ports of this machine, and lets
    an OpenAI client work through a task with tools. It needs no key and no network, and leaves nothing
    behind. The exit code is 1 when a turn was refused.

    \b
    Examples:
      tailfold demo
      tailfold demo --window 16000 --turns 100 --fast
      tailfold demo --fast --json
    """
    display = Display(window, turns, wants_colour(sys.stdout, os.environ))
    tell: Callable[[str], None] = _silence if as_json else click.echo
    for line in display.opening():
        tell(line)
    played = _played(turns, window, 0.0 if fast else _PAUSE, lambda turn: tell(display.line(turn)))
    totals = asyncio.run(played)
    for line in display.closing(totals):
        tell(line)
    if as_json:
        click.echo(json.dumps(asdict(totals), indent=2))
    sys.exit(1 if totals.refused else 0)


def _silence(_line: str) -> None:
    pass


async def _played(turns: int, window: int, pause: float, watch: Callable[[Turn], None]) -> Totals:
    from proxy import logs
    from proxy.simulator import Simulator, SimulatorConfig

    logs.configure("warning", "auto")
    played: list[Turn] = []
    summaries: list[int] = []
    async with (
        Simulator(SimulatorConfig(windows={_MODEL: window})) as simulator,
        _proxy(simulator.base_url, window) as base_url,
        _client(base_url) as client,
    ):
        history = [SYSTEM]
        for number in range(1, turns + 1):
            played.append(await _turn(client, history, Work(number)))
            summaries += _summaries_taken(simulator)
            watch(played[-1])
            await asyncio.sleep(pause)
        summaries += _summaries_taken(simulator)
    return Totals.of(played, window, summaries)


@asynccontextmanager
async def _proxy(upstream: str, window: int) -> AsyncIterator[str]:
    from proxy.app import Tailfold

    tailfold = Tailfold(Settings(upstream=upstream, store="memory://", models={_MODEL: Model(window=window)}))
    with addresses.listening_socket(_HOST, 0) as sock:
        await tailfold.start(sock)
        try:
            yield f"{addresses.url(_HOST, addresses.port_of(sock))}/v1"
        finally:
            await tailfold.drain()


@asynccontextmanager
async def _client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    # What this machine has set for the way to the internet is not for an address of its own.
    http = DefaultAsyncHttpxClient(trust_env=False)
    async with AsyncOpenAI(base_url=base_url, api_key="sk-demo", max_retries=0, http_client=http) as client:
        yield client


async def _turn(client: AsyncOpenAI, history: list[Message], work: Work) -> Turn:
    """The user's question, and the results of what is called until the model answers in words.

    A turn that was refused leaves no trace in the history.
    """
    messages = [*history, work.question]
    steps: list[Step] = []
    while True:
        step, answer = await _ask(client, messages)
        steps.append(step)
        if answer is None:
            break
        messages.append(answer)
        if "tool_calls" not in answer:
            history[:] = messages
            break
        messages += [work.result(call["id"]) for call in answer["tool_calls"]]
    return Turn(work.number, tuple(steps))


async def _ask(client: AsyncOpenAI, messages: list[Message]) -> tuple[Step, Message | None]:
    from openai import APIStatusError

    request: dict[str, Any] = {"model": _MODEL, "messages": messages, "tools": TOOLS}
    try:
        raw = await client.chat.completions.with_raw_response.create(**request)
    except APIStatusError as refusal:
        return Step.told(refusal.response.headers, None, refused=True), None
    answer = raw.parse()
    said = answer.choices[0].message
    message = said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
    return Step.told(raw.headers, answer.usage), message


def _summaries_taken(simulator: Simulator) -> list[int]:
    """The tokens of the summary calls since it was last asked; the rest need not be kept either."""
    from proxy.simulator.tokens import TiktokenCounter, message_tokens

    counter = TiktokenCounter()
    calls = simulator.summary_calls()
    simulator.forget_requests()
    return [sum(message_tokens(message, counter) for message in call.parsed["messages"]) for call in calls]
