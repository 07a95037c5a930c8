"""However long a conversation and however small the model that writes: few calls, and folds that last."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest

from proxy.simulator import SimulatorConfig
from tests.folding.agent import MODEL, WINDOW, Agent, Stage, prose, small, stage
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour. " + prose(1, 40)}
WRITER = "gpt-4o-mini"
SPEAKERS = ("user", "assistant")


def history(messages: int, words: int) -> list[Message]:
    said = (f"Part {number}: {sentences(number, words // 11)}" for number in range(messages))
    return [
        SYSTEM,
        *({"role": role, "content": text} for role, text in zip(cycle(SPEAKERS), said, strict=False)),
    ]


def sentences(seed: int, number: int) -> str:
    """No two of them alike."""
    return " ".join(f"Ship {seed * 100 + place} has {prose(seed + place, 7)}" for place in range(number))


async def talk(agent: Agent, on: Stage, turns: int, words: int = 200) -> None:
    for number in range(turns):
        answer = await agent.say(f"Turn {number}: {prose(number, words)}")
        assert answer.status == 200, answer.body
        await on.folded()


def calls(on: Stage) -> list[tuple[str, int]]:
    """Which models were asked for summaries, and of at most how many tokens."""
    bodies = [received.json() for received in on.upstream.summary_calls()]
    return [(body["model"], body["max_tokens"]) for body in bodies]


async def test_a_model_with_a_small_window_sums_up_a_thousand_messages_in_eight_calls_at_most() -> None:
    config = SimulatorConfig(longest_answers={WRITER: 900})
    models = {MODEL: {"window": 32_000}, WRITER: {"max_output": 900}}
    async with stage(config, models=models) as on:
        agent = on.agent(*history(1_000, 120))
        answer = await agent.say("Where were we?")
        assert (answer.status, answer.action) == (200, "fold")
        assert set(calls(on)) == {(WRITER, 900)}
        assert len(calls(on)) <= 8
        await talk(agent, on, 10)
        assert {each.fold for each in agent.answers} == {answer.fold}


async def test_an_answer_that_is_refused_for_its_length_is_asked_for_shorter_from_then_on() -> None:
    async with stage(replace(small(), longest_answers={WRITER: 300})) as on:
        agent = on.agent(*history(24, 200))
        await talk(agent, on, 40)
        assert {model for model, _ in calls(on)} == {WRITER}
        (_, first), (_, second), *others = calls(on)
        assert first > second == 300
        assert len(others) > 1
        assert all(asked <= 300 for _, asked in others)


async def test_a_model_that_is_told_too_much_at_once_is_told_less_from_then_on() -> None:
    async with stage(replace(small(), windows={MODEL: WINDOW, WRITER: 4_000})) as on:
        agent = on.agent(*history(24, 200))
        await talk(agent, on, 40)
        assert {model for model, _ in calls(on)} == {WRITER}
        sizes = [len(received.body) for received in on.upstream.summary_calls()]
        assert sizes[0] > 4_000 * 5
        assert len(sizes) > 4
        assert all(size < 4_000 * 5 for size in sizes[1:])


@pytest.mark.parametrize(("instructions", "times"), [(50, 3), (50, 12), (5_000, 3), (6_000, 3)])
async def test_without_a_model_too_a_fold_leaves_room_for_many_turns(instructions: int, times: int) -> None:
    async with stage(small(summaries="error")) as on:
        agent = on.agent(*history(times * 25, 240))
        agent.messages[0] = {"role": "system", "content": prose(1, instructions * 6 // 7)}
        for number in range(30):
            answer = await agent.say(f"Turn {number}: {sentences(number, 4)}")
            assert answer.status == 200
            await on.folded()
        assert on.refused() == 0
        folds = list(dict.fromkeys(answer.fold for answer in agent.answers))
        assert None not in folds
        assert len(folds) <= 3
        reused = [answer for answer in agent.answers if answer.action == "reuse"]
        assert len(reused) == 30 - len(folds)
        assert all(answer.cached > 0.9 * answer.billed - 130 for answer in reused)
