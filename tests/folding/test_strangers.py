"""Whom the upstream refuses leaves nothing in the store, whatever is asked; whom it accepts, everything."""

from __future__ import annotations

import asyncio
import random
import secrets
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.folding.agent import Agent, Stage, prose, small, stage, with_tools
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}
KEY = "sk-one"


def stored(home: Path) -> Counter[str]:
    """How many values there are of each kind."""
    with closing(sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True)) as file:
        return Counter(dict(file.execute("SELECT space, count(*) FROM facts GROUP BY space")))


def size(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("state.db*"))


def stage_at(home: Path, **settings: Any) -> Any:
    return stage(small(api_key=KEY), store=f"sqlite:///{home}/state.db", **settings)


async def talk(agent: Agent, on: Stage, turns: int) -> None:
    for number in range(turns):
        answer = await agent.say(f"Turn {len(agent.messages)}: {prose(number, 250)}")
        assert answer.status == 200
        await on.folded()


def stranger(on: Stage, dice: random.Random) -> Agent:
    """With a key and words of its own, now and then with far too many of them."""
    agent = on.agent(SYSTEM, key=f"sk-{secrets.token_hex(16)}", options=with_tools())
    agent.headers["X-Conversation-Id"] = secrets.token_hex(8)
    for number in range(dice.choice([1, 3, 21, 61])):
        said = f"{secrets.token_hex(16)} {prose(number, dice.choice([20, 300]))}"
        agent.messages.append({"role": "assistant" if number % 2 else "user", "content": said})
    if dice.random() < 0.2:
        agent.messages[-1]["content"] += prose(5, 9_000)  # it fits in no form
    if dice.random() < 0.2:
        agent.headers["X-Tailfold-Mode"] = "observe"
    agent.options["stream"] = dice.random() < 0.3
    return agent


async def test_two_hundred_strangers_leave_nothing_in_the_store(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as on:
        await talk(on.agent(SYSTEM), on, 3)
    before = stored(tmp_path), size(tmp_path)
    dice = random.Random(4)
    async with stage_at(tmp_path) as on:
        for _ in range(10):
            asked = [stranger(on, dice).send() for _ in range(20)]
            assert {answer.status for answer in await asyncio.gather(*asked)} == {401}
        await on.folded()
        assert on.proxy.metric("tailfold_warnings_total", warning="summary_failed") > 20
    assert (stored(tmp_path), size(tmp_path)) == before


@pytest.mark.parametrize("fault", ["rate_limited", "server_error"])
async def test_who_is_refused_for_now_leaves_nothing_before_being_answered(
    tmp_path: Path, fault: str
) -> None:
    async with stage_at(tmp_path, compression={"strategy": "extractive"}) as on:
        agent = too_long(on)
        agent.headers["x-sim-fault"] = fault
        assert (await agent.send()).status >= 429
    assert not {"counts", "folds", "lanes", "messages"} & stored(tmp_path).keys()


def too_long(on: Stage) -> Agent:
    agent = on.agent(SYSTEM)
    for number in range(61):
        role = "assistant" if number % 2 else "user"
        agent.messages.append({"role": role, "content": f"Part {number}: {prose(number, 250)}"})
    return agent


@pytest.mark.parametrize("strategy", ["summarize", "extractive"])
async def test_the_very_first_request_of_a_caller_who_is_accepted_is_kept_whole(
    tmp_path: Path, strategy: str
) -> None:
    async with stage_at(tmp_path, compression={"strategy": strategy}) as on:
        agent = too_long(on)
        answer = await agent.step()
        assert answer.status == 200
        assert answer.fold is not None
        before = on.sent()[-1]
    kept = stored(tmp_path)
    assert kept["folds"] == 1
    assert kept["messages"] == kept["counts"] == len(agent.messages) - 1
    assert kept["lanes"] >= 3
    async with stage_at(tmp_path, compression={"strategy": strategy}) as on:
        again = on.agent(*agent.messages)
        assert (await again.say("And then?")).fold == answer.fold
        assert on.sent()[-1][: len(before)] == before


async def test_what_a_first_request_has_taught_of_the_window_is_kept_once_it_was_accepted(
    tmp_path: Path,
) -> None:
    async with stage_at(tmp_path, models={"gpt-4o": {"window": 16_000}}) as on:
        agent = too_long(on)
        assert (await agent.step()).status == 200
        assert on.refused() == 1
    async with stage_at(tmp_path, models={"gpt-4o": {"window": 16_000}}) as on:
        assert (await on.agent(*agent.messages).say("And then?")).status == 200
        assert on.refused() == 0


async def test_a_caller_who_was_accepted_before_is_kept_whatever_is_refused_later(tmp_path: Path) -> None:
    async with stage_at(tmp_path) as on:
        agent = on.agent(SYSTEM)
        await talk(agent, on, 2)
        agent.messages.append({"role": "user", "content": prose(3, 300)})
        assert (await agent.send(**{"x-sim-fault": "rate_limited"})).status == 429
    assert stored(tmp_path)["counts"] == len(agent.messages)
