"""A conversation may go on with another model at any time, with a larger window or a smaller one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from proxy.simulator import SimulatorConfig
from tests.fold.validator import faults
from tests.folding.agent import Agent, Stage, prose, stage, with_tools
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}
LARGE, SMALL = "gpt-4o", "gpt-4.1"
WINDOWS = {LARGE: 16_000, SMALL: 4_000}


def two_windows() -> Any:
    models = {name: {"window": window} for name, window in WINDOWS.items()}
    return stage(SimulatorConfig(windows=WINDOWS), models=models)


async def talk(agent: Agent, on: Stage, model: str, turns: int) -> list[list[Message]]:
    """What was sent of these turns."""
    agent.model, since = model, len(on.sent())
    for _ in range(turns):
        number = len(agent.messages)
        call = "call:look " if number % 4 == 1 else ""
        answer = await agent.say(f"{call}Turn {number}: {prose(number, 150)}", result=prose(number, 100))
        assert answer.status == 200
        await on.folded()
    return on.sent()[since:]


async def until_folded(agent: Agent, on: Stage, model: str) -> None:
    while not agent.answers or agent.answers[-1].fold is None:
        await talk(agent, on, model, 1)


def assert_only_grows(sent: list[list[Message]]) -> None:
    for before, after in pairwise(sent):
        assert after[: len(before)] == before


@pytest.mark.parametrize("folded", [False, True], ids=["as it came", "folded already"])
async def test_from_a_larger_window_to_a_smaller_one_and_back(folded: bool) -> None:
    async with two_windows() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        if folded:
            await until_folded(agent, on, LARGE)
        await talk(agent, on, LARGE, 20)
        fold_of_large = agent.answers[-1].fold
        assert (fold_of_large is not None) is folded
        assert agent.answers[-1].billed > WINDOWS[SMALL]

        smaller = await talk(agent, on, SMALL, 1)
        fold_of_small = agent.answers[-1].fold
        assert fold_of_small not in (None, fold_of_large)
        while agent.answers[-1].fold == fold_of_small:
            smaller += await talk(agent, on, SMALL, 1)
        fold_of_small = agent.answers[-1].fold
        assert agent.answers[-1].billed < WINDOWS[SMALL]

        back = [smaller[-1], *await talk(agent, on, LARGE, 12)]
        assert {answer.fold for answer in agent.answers[-12:]} == {fold_of_small}
        assert_only_grows(back)

        assert on.refused() == 0
        assert all(faults(sent) == [] for sent in on.sent())
        assert all(answer.warnings == [] for answer in agent.answers)


async def test_who_changes_the_model_with_every_turn_is_folded_as_seldom_as_with_the_smaller_one() -> None:
    async with two_windows() as on:
        changing, steady = (on.agent(SYSTEM, options=with_tools(), key=key) for key in ("sk-one", "sk-other"))
        for number in range(60):
            await talk(changing, on, (LARGE, SMALL)[number % 2], 1)
            await talk(steady, on, SMALL, 1)
        folds, of_smaller = (
            len({answer.fold for answer in agent.answers if answer.fold}) for agent in (changing, steady)
        )
        assert on.refused() == 0
        assert all(faults(sent) == [] for sent in on.sent())
        assert folds <= of_smaller
