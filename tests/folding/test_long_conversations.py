"""Conversations that would have died of their length go on, and nothing that must stay is lost."""

from __future__ import annotations

import pytest

from tests.fold.validator import faults
from tests.folding.agent import WINDOW, Agent, Stage, prose, small, stage, with_tools
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour. " + prose(1, 120)}


async def forty_turns(agent: Agent, on: Stage, turns: int = 40) -> None:
    """Of about 300 tokens each, every other one with a tool call."""
    for number in range(turns):
        call = "call:look " if number % 2 else ""
        await agent.say(f"{call}Turn {number}: {prose(number, 150)}", result=prose(number + 500, 120))
        await on.folded()


def folds_of(agent: Agent) -> list[str]:
    return list(dict.fromkeys(answer.fold for answer in agent.answers if answer.fold))


async def test_forty_turns_are_answered_with_few_folds_and_most_of_the_prefix_reused() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await forty_turns(agent, on)
        assert {answer.status for answer in agent.answers} == {200}
        assert 1 <= len(folds_of(agent)) <= 5
        assert len(on.upstream.summary_calls()) <= 5
        assert on.refused() == 0
        repeated = on.proxy.metric("tailfold_prefix_tokens_total", kind="repeated")
        assert repeated >= 0.8 * on.proxy.metric("tailfold_prefix_tokens_total")
        assert sum(answer.cached for answer in agent.answers) >= 0.8 * sum(
            answer.billed for answer in agent.answers
        )


@pytest.mark.parametrize("role", ["system", "user", "assistant", "append"])
async def test_what_was_sent_is_the_beginning_of_what_is_sent_next_until_a_fold(role: str) -> None:
    async with stage(compression={"summary_role": role}) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await forty_turns(agent, on, 24)
        sent = on.sent()
        for before, after, answer in zip(sent, sent[1:], agent.answers[1:], strict=False):
            assert faults(after) == []
            if answer.action in ("pass", "reuse"):
                assert after[: len(before)] == before
        assert any(answer.action == "fold" for answer in agent.answers)


async def test_every_instruction_and_the_newest_user_message_reach_the_upstream_word_for_word() -> None:
    developer = {"role": "developer", "content": "Never leave the lamp burning by day."}
    middle = {"role": "system", "content": "From now on it is winter."}
    async with stage() as on:
        agent = on.agent(SYSTEM, developer, options=with_tools())
        await forty_turns(agent, on, 10)
        agent.messages.append(middle)
        await forty_turns(agent, on, 30)
        assert len(folds_of(agent)) >= 2
        for number, sent in enumerate(on.sent()):
            instructions = [message for message in sent if message["role"] in ("system", "developer")]
            assert instructions == ([SYSTEM, developer, middle] if number >= 15 else [SYSTEM, developer])
        newest = [said for said in agent.messages if said["role"] == "user"][-1]
        assert on.sent()[-1].count(newest) == 1


async def test_an_agent_works_two_hundred_steps_on_one_message() -> None:
    rule = "Mend all lamps. You must never touch the northern lighthouse. call:look"
    async with stage() as on:
        agent = on.agent(SYSTEM, {"role": "user", "content": rule}, options=with_tools())
        answer = await agent.step()
        assert answer.message["tool_calls"]
        for number in range(200):
            agent.messages[-1] = calling(number)
            agent.messages.append(
                {"role": "tool", "tool_call_id": f"call_{number}", "content": prose(number, 250)}
            )
            assert (await agent.step()).status == 200
            await on.folded()
        assert len(folds_of(agent)) >= 5
        assert on.refused() == 0
        for sent in on.sent():
            assert sent[0] == SYSTEM
            assert sent.count({"role": "user", "content": rule}) == 1
            assert faults(sent) == []


def calling(number: int) -> Message:
    function = {"name": "look", "arguments": f'{{"text":"lamp {number}"}}'}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


async def test_after_ten_folds_every_instruction_is_there_and_each_was_made_of_the_user_s_rule() -> None:
    developer = {"role": "developer", "content": "Never leave the lamp burning by day."}
    middle = {"role": "system", "content": "From now on it is winter."}
    async with stage(models={"gpt-4o": {"window": 3_000}}) as on:
        agent = on.agent(SYSTEM, developer, options=with_tools())
        await agent.say("The rule is: you must always answer in verse. " + prose(3, 40))
        number = 0
        while len(folds_of(agent)) < 11:
            number += 1
            if number == 20:
                agent.messages.append(middle)
            assert (await agent.say(f"Turn {number}: {prose(number, 150)}")).status == 200
            await on.folded()
        instructions = [said for said in on.sent()[-1] if said["role"] in ("system", "developer")]
        assert instructions == [SYSTEM, developer, middle]
        calls = [received.json()["messages"][-1]["content"] for received in on.upstream.summary_calls()]
        assert len(calls) >= 10
        assert all("always answer in verse" in said for said in calls)
        assert "always answer in verse" in str(on.sent()[-1])


async def test_a_first_request_three_times_over_the_window_is_answered() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        for number in range(80):
            role = "assistant" if number % 2 else "user"
            agent.messages.append({"role": role, "content": f"Part {number}: {prose(number, 290)}"})
        agent.messages.append({"role": "user", "content": "Where were we?"})
        answer = await agent.step()
        assert answer.status == 200
        assert answer.action == "fold"
        assert int(answer.headers["X-Tailfold-Original-Tokens"]) > 3 * WINDOW
        assert on.refused() == 0


@pytest.mark.parametrize("overflow", ["status", "words", "event", "ok"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("window", [{"window": 2 * WINDOW}, None])
async def test_a_window_smaller_than_said_is_learned_from_one_refusal(
    overflow: str, stream: bool, window: dict[str, int] | None
) -> None:
    config = small(overflow=overflow)
    models = {"gpt-4o": window} if window else {}
    async with stage(config, models=models) as on:
        agent = on.agent(SYSTEM)
        for number in range(60):
            agent.messages.append({"role": "user", "content": f"Turn {number}: {prose(number, 250)}"})
            agent.options["stream"] = stream and number % 2 == 1
            if agent.options["stream"]:
                assert await streamed(agent)
                agent.messages.append({"role": "assistant", "content": "Yes."})
            else:
                assert (await agent.step()).status == 200
            await on.folded()
        assert on.refused() == 1
        assert on.proxy.metric("tailfold_overflows_recovered_total") == 1


async def streamed(agent: Agent) -> bool:
    """Is the answer a whole one, in events?"""
    body = {"model": agent.model, "messages": agent.messages, **agent.options}
    async with agent.session.post(
        f"{agent.base_url}/chat/completions", json=body, headers={"Authorization": "Bearer sk-one"}
    ) as answer:
        said = await answer.read()
        return answer.status == 200 and b"[DONE]" in said and b'"error"' not in said
