"""Folds outlive the process that made them, and several processes on one file make each of them once."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from proxy.lanes import lane_from
from proxy.simulator import Simulator
from tests.cli.command import eventually
from tests.folding.agent import Agent, prose, small
from tests.folding.processes import agent_at, proxying
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}
STORE = ("--store", "sqlite:///state.db")


@pytest.fixture
async def upstream() -> AsyncIterator[Simulator]:
    async with Simulator(small()) as simulator:
        yield simulator


def longest_lane(home: Path) -> int:
    """How many turns the newest request had of which the store knows."""
    with sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True) as file:
        rows = file.execute("SELECT value FROM facts WHERE space = 'lanes'").fetchall()
    return max((lane.length for (value,) in rows if (lane := lane_from(value)) is not None), default=0)


def turns(agent: Agent) -> int:
    """In the agent's last request: neither instructions nor its answer."""
    return len(agent.messages) - 2


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


async def talk(agent: Agent, first: int, last: int) -> None:
    for number in range(first, last):
        call = "call:look " if number % 3 == 1 else ""
        answer = await agent.say(f"{call}Turn {number}: {prose(number, 200)}", result=prose(number, 100))
        assert answer.status == 200


def is_settled(upstream: Simulator, home: Path, turns: int) -> bool:
    return not upstream.active and longest_lane(home) == turns


def bodies(upstream: Simulator) -> list[bytes]:
    return [received.body for received in upstream.chat_calls()]


async def test_after_a_kill_the_next_turn_sends_the_same_bytes_and_asks_for_no_summary(
    upstream: Simulator, tmp_path: Path
) -> None:
    history: list[Message] = [SYSTEM]
    async with proxying(upstream, tmp_path, *STORE) as proxy, agent_at(proxy, history) as agent:
        number = 0
        while not any(answer.action == "reuse" for answer in agent.answers):
            await talk(agent, number, number + 1)
            number += 1
        await until(lambda: longest_lane(tmp_path) == turns(agent))
        last = agent.answers[-1]
        await asyncio.to_thread(proxy.end, signal.SIGKILL)
    summaries, sent = len(upstream.summary_calls()), bodies(upstream)[-1]
    async with proxying(upstream, tmp_path, *STORE) as proxy, agent_at(proxy, history[:-1]) as agent:
        again = await agent.send()
        assert (again.action, again.fold) == ("reuse", last.fold)
        assert bodies(upstream)[-1] == sent
        await talk(agent_after(agent, again.message), number, number + 2)
    assert len(upstream.summary_calls()) == summaries


def agent_after(agent: Agent, answer: Message) -> Agent:
    agent.messages.append(answer)
    return agent


async def test_a_process_that_dies_in_the_middle_of_a_fold_costs_one_call_more(
    upstream: Simulator, tmp_path: Path
) -> None:
    history: list[Message] = [SYSTEM]
    with upstream.holding_summaries():
        async with proxying(upstream, tmp_path, *STORE) as proxy, agent_at(proxy, history) as agent:
            number = 0
            await talk(agent, 0, 1)
            # Past the soft trigger one is begun.
            while int(agent.answers[-1].headers["X-Tailfold-Tokens"]) <= 5_700:
                number += 1
                await talk(agent, number, number + 1)
            await upstream.wait_until(lambda: upstream.active > 0, timeout=60)
            number += 1
            await asyncio.to_thread(proxy.end, signal.SIGKILL)
    async with proxying(upstream, tmp_path, *STORE) as proxy, agent_at(proxy, history) as agent:
        while not any(answer.action == "reuse" for answer in agent.answers):
            await talk(agent, number, number + 1)
            number += 1
        assert {answer.status for answer in agent.answers} == {200}
        assert {answer.action for answer in agent.answers} <= {"pass", "fold", "reuse"}
    assert len(upstream.summary_calls()) <= 3  # the one that died, its second try, and the next fold's


async def test_two_workers_on_one_file_send_the_bytes_of_one(tmp_path: Path) -> None:
    sent, summaries = [], []
    for workers in ("1", "2"):
        home = tmp_path / workers
        home.mkdir()
        async with Simulator(small()) as upstream:
            async with proxying(upstream, home, *STORE, "--workers", workers) as proxy:
                history: list[Message] = [SYSTEM]
                for number in range(30):
                    # A connection of its own for every turn, so that the turns go to both.
                    async with agent_at(proxy, history) as agent:
                        await talk(agent, number, number + 1)
                        # What one has learned must be there before the other is asked.
                        await until(partial(is_settled, upstream, home, turns(agent)))
                await asyncio.to_thread(proxy.end)  # folds that have begun are waited for
            sent.append(bodies(upstream))
            summaries.append(len(upstream.summary_calls()))
    assert sent[0] == sent[1]
    assert summaries[0] == summaries[1] >= 1
