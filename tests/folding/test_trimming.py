"""Clients that trim or rewrite their own history: no later request has a use for a fold of it, so after two
of them no model is asked. Clients that resend all of it are never taken for those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.folding.agent import Agent, Answer, prose, stage
from tests.folding.several import several, trimmed, window_for
from tests.folding.trimmers import CLIENTS, NAMED_ONLY, SYSTEM
from tests.simulator.talk import assistant, user

NAMED = {"X-Conversation-Id": "the harbour"}
# What it is in the window: past the soft trigger, past the hard one, or too large for it.
FULL = ("soft", "hard", "over")


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("name", CLIENTS)
async def test_who_trims_for_thirty_turns_costs_two_summaries(name: str, full: str) -> None:
    client = CLIENTS[name]
    async with several(await window_for(client, full), "memory://") as on:
        assert await trimmed(on, client, {}) <= 2


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("name", NAMED_ONLY)
@pytest.mark.parametrize(
    ("headers", "options"),
    [
        (NAMED, {}),
        ({"X-Session-Id": "one"}, {}),
        ({}, {"metadata": {"session_id": "one"}}),
    ],
)
async def test_of_whom_nothing_else_is_known_the_name_tells_it(
    name: str, full: str, headers: dict[str, str], options: dict[str, Any]
) -> None:
    client = NAMED_ONLY[name]
    async with several(await window_for(client, full), "memory://") as on:
        assert await trimmed(on, client, headers, **options) <= 2


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize(
    "name", ["the newest messages", "the first and a few, from the beginning", "every tenth turn"]
)
async def test_with_a_name_it_is_so_too(name: str, full: str) -> None:
    async with several(await window_for(CLIENTS[name], full), "memory://") as on:
        assert await trimmed(on, CLIENTS[name], NAMED) <= 2


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize(
    "name",
    [
        "the newest messages",
        "the first and the newest",
        "results cleared later",
        "every tenth turn",
        "hardly more than the answer",
    ],
)
async def test_two_requests_at_a_time_may_cost_one_each(name: str, full: str) -> None:
    client = (CLIENTS | NAMED_ONLY)[name]
    async with several(await window_for(client, full), "memory://") as on:
        assert await trimmed(on, client, NAMED, twice=True) <= 4


# Several processes.

SHARED = [
    ("the newest messages", {}),
    ("the first and a few, from the beginning", {}),
    ("context that is rendered anew", {}),
    ("results cleared later", {}),
    ("the first message alone", NAMED),
    ("every tenth turn", NAMED),
    ("hardly more than the answer", NAMED),
]


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize(("name", "headers"), SHARED)
async def test_two_workers_on_one_file_know_it_of_each_other(
    name: str, headers: dict[str, str], full: str, tmp_path: Path
) -> None:
    client = (CLIENTS | NAMED_ONLY)[name]
    store = f"sqlite:///{tmp_path}/state.db"
    async with several(await window_for(client, full), store, store) as on:
        assert await trimmed(on, client, headers) <= 2


@pytest.mark.parametrize(("name", "headers"), SHARED)
async def test_a_restart_forgets_nothing_of_it(name: str, headers: dict[str, str], tmp_path: Path) -> None:
    client = (CLIENTS | NAMED_ONLY)[name]
    store, window = f"sqlite:///{tmp_path}/state.db", await window_for(client, "over")
    summaries = 0
    for part in (slice(0, 12), slice(12, 30)):
        async with several(window, store) as on:
            for turn, messages in [*enumerate(client.requests)][part]:
                if turn == client.trims_from:
                    summaries = -on.summaries()
                await on.sent(messages, 0, headers)
                await on.settled()
            summaries += on.summaries()
            assert {answer.status for answer in on.answers} == {200}
    assert summaries <= 2


# Those who resend all of it.


@pytest.mark.parametrize("edited_every", [4, 7, 12])
async def test_who_edits_an_earlier_message_now_and_then_keeps_folds_prepared(edited_every: int) -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM)
        for number in range(60):
            await agent.say(f"Turn {number}: {prose(number, 250)}")
            await on.folded()
            if number % edited_every == edited_every - 1:
                agent.messages[3] = user(f"Turn 1, edited {number}: {prose(number, 100)}")
        assert {answer.status for answer in agent.answers} == {200}
        assert "folding_paused" not in {warning for answer in agent.answers for warning in answer.warnings}
        assert "extract" not in {answer.action for answer in agent.answers}


async def test_who_branches_and_asks_for_other_answers_keeps_folds_prepared() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM)
        for number in range(60):
            await agent.say(f"Turn {number}: {prose(number, 250)}")
            await on.folded()
            if number % 3 == 1:
                agent.messages[-1] = (await asked_again(agent)).message
            if number % 5 == 4:
                branch = agent.copy()
                branch.messages[-2] = user(f"Rather, {number}: {prose(number + 100, 250)}")
                branch.messages.pop()
                assert (await branch.step()).status == 200
                assert (await branch.say("And then?")).status == 200
                agent = branch if number % 2 else agent
                await on.folded()
            assert agent.answers[-1].action in ("pass", "fold", "reuse")
            assert agent.answers[-1].warnings == []


async def asked_again(agent: Agent) -> Answer:
    again = agent.copy()
    again.messages.pop()
    answer = await again.step()
    assert answer.status == 200
    return answer


@pytest.mark.parametrize("headers", [NAMED, {}])
async def test_lines_side_by_side_that_begin_alike_are_folded_each(headers: dict[str, str]) -> None:
    async with stage() as on:
        agents = [on.agent(SYSTEM, user("Hello."), assistant("Hello!"), headers=headers) for _ in range(8)]
        for number in range(40):
            for place, agent in enumerate(agents):
                await agent.say(f"Turn {number} of {place}: {prose(number, 250)}")
            await on.folded()
        for agent in agents:
            assert {answer.action for answer in agent.answers} == {"pass", "fold", "reuse"}
