"""An answer that leaves hardly anything of the window costs a conversation neither memory nor folds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fold.validator import faults
from tests.folding.agent import WINDOW, Agent, Stage, prose, small, stage
from tests.simulator.talk import Message, user

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}


async def talk(agent: Agent, on: Stage, turns: int) -> None:
    for _ in range(turns):
        number = len(agent.messages)
        answer = await agent.say(f"Turn {number}: {prose(number, 150)}")
        assert answer.status == 200, answer.body
        await on.folded()


def room(agent: Agent) -> int:
    return int(agent.answers[-1].headers["X-Tailfold-Limit"])


@pytest.mark.parametrize("declared", [WINDOW, WINDOW - 1, 10 * WINDOW, 2**31])
async def test_an_answer_as_long_as_the_window_is_folded_for_as_if_nothing_had_been_declared(
    declared: int,
) -> None:
    async with stage(small(caps_answers=True, longest_answers={})) as on:
        usual = on.agent(SYSTEM, options={}, key="sk-usual")
        agent = on.agent(SYSTEM, options={"max_tokens": declared})
        for one in (usual, agent):
            await talk(one, on, 60)
        assert [answer.action for answer in agent.answers] == [answer.action for answer in usual.answers]
        assert len({answer.fold for answer in agent.answers if answer.fold}) >= 2
        assert room(agent) == room(usual)
        assert on.refused() == 0


async def test_no_more_is_reserved_than_the_model_s_longest_answer() -> None:
    model = {"window": WINDOW, "max_output": 500}
    async with stage(small(caps_answers=True, longest_answers={}), models={"gpt-4o": model}) as on:
        agent = on.agent(SYSTEM, options={"max_tokens": 5000})
        await talk(agent, on, 1)
        assert room(agent) == WINDOW - 500 - WINDOW // 20


@pytest.mark.parametrize("overflow", ["status", "words", "nameless", "event", "ok"])
@pytest.mark.parametrize(
    ("declared", "model"),
    [(7000, {}), (2000, {"max_output": 100})],
    ids=["nearly all of the window", "more than the map says that the model can answer"],
)
async def test_an_upstream_that_does_count_it_refuses_once(
    overflow: str, declared: int, model: dict[str, Any]
) -> None:
    config = small(overflow=overflow)
    async with stage(config, models={"gpt-4o": {"window": WINDOW, **model}}) as on:
        agent = on.agent(SYSTEM, options={"max_tokens": declared})
        for number in range(60):
            await agent.say(f"Turn {number}: {prose(number, 100)}")
            assert agent.answers[-1].status == 200
            await on.folded()
        assert on.refused() == 1
        assert on.proxy.metric("tailfold_overflows_recovered_total") == 1
        assert len({answer.fold for answer in agent.answers if answer.fold}) >= 2
        assert all(faults(sent) == [] for sent in on.sent())
        # Of the window itself nothing else was learned.
        agent.options = {"max_tokens": 100}
        await agent.step()
        assert room(agent) == WINDOW - 100 - WINDOW // 20


@pytest.mark.parametrize("overflow", ["status", "nameless"])
@pytest.mark.parametrize("declared", [WINDOW - 100, WINDOW, 4 * WINDOW])
async def test_what_no_shorter_prompt_can_mend_is_not_sent_again_and_teaches_nothing(
    declared: int, overflow: str
) -> None:
    async with stage(small(longest_answers={}, overflow=overflow)) as on:
        agent = on.agent(SYSTEM, options={"max_tokens": 100})
        await talk(agent, on, 16)
        before = room(agent)
        greedy = agent.copy()
        greedy.messages.append(user("And now?"))
        greedy.options = {"max_tokens": declared}
        sent = len(on.sent())
        answer = await greedy.step()
        assert (answer.status, answer.body["error"]["code"]) == (400, "context_length_exceeded")
        assert len(on.sent()) == sent + 1
        assert on.sent()[-1] == greedy.messages
        await talk(agent, on, 1)
        assert (agent.answers[-1].action, room(agent)) == ("pass", before)
