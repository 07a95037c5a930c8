"""A summary may be asked of the conversation's own model, behind the conversation as it was sent last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.fold.transcript import BEGIN
from proxy.fold.wording import RECORD_WANTED
from tests.fold.validator import faults
from tests.folding.agent import MODEL, Agent, Stage, prose, stage, with_tools
from tests.simulator.talk import Message

SYSTEM: Message = {"role": "system", "content": "You look after the harbour. " + prose(1, 120)}
OTHER: Message = {"role": "system", "content": "You look after the lighthouse. " + prose(2, 120)}
ON_PREFIX = {"on_prefix": True}


async def forty_turns(agent: Agent, on: Stage, turns: int = 40) -> None:
    for number in range(turns):
        call = "call:look " if number % 2 else ""
        answer = await agent.say(
            f"{call}Turn {number}: {prose(number, 150)}", result=prose(number + 500, 120)
        )
        assert answer.status == 200, answer.body
        await on.folded()


def asked(on: Stage) -> list[dict[str, Any]]:
    """The bodies of the summary calls."""
    return [received.json() for received in on.upstream.summary_calls()]


def folds_of(agent: Agent) -> list[str]:
    return list(dict.fromkeys(answer.fold for answer in agent.answers if answer.fold))


async def test_forty_turns_are_summed_up_on_what_the_provider_has_in_its_cache() -> None:
    async with stage(summarizer=ON_PREFIX) as on:
        tools = with_tools()
        agent = on.agent(SYSTEM, options={**tools, "stop": ["never"], "n": 1, "seed": 7})
        await forty_turns(agent, on)
        assert 1 <= len(folds_of(agent)) <= 5
        assert on.refused() == 0
        assert len(asked(on)) >= len(folds_of(agent))
        sent = on.sent()
        for body in asked(on):
            assert (body["model"], body["tools"], body["tool_choice"]) == (MODEL, tools["tools"], "none")
            assert body["seed"] == 7
            assert body["max_tokens"] >= 200
            assert not body.keys() & {"stream", "stop", "n", "temperature"}
            assert RECORD_WANTED in body["messages"][-1]["content"]
            above = body["messages"][:-1]
            assert faults(above) == []
            assert any(messages[: len(above)] == above for messages in sent)
        # The later ones go on from the record that stands above them.
        assert "Merge it" not in asked(on)[0]["messages"][-1]["content"]
        assert all("Merge it" in body["messages"][-1]["content"] for body in asked(on)[1:])
        read = on.proxy.metric("tailfold_summary_tokens_total", kind="input")
        assert on.proxy.metric("tailfold_summary_tokens_total", kind="cache_read") >= 0.75 * read


async def test_a_changed_instruction_does_not_get_the_fold_of_another() -> None:
    async with stage(summarizer=ON_PREFIX) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await forty_turns(agent, on, 24)
        [*_, newest] = folds_of(agent)
        same, other = agent.copy(), agent.copy()
        other.messages[0] = OTHER
        assert (await same.say("Where were we?")).fold == newest
        for _ in range(2):
            assert (await other.say("Where were we?")).status == 200
            await on.folded()
        assert folds_of(other)
        assert not {*folds_of(other)} & {*folds_of(agent)}
        # What was asked for it has seen nothing of the instruction that was there before.
        assert BEGIN in asked(on)[-1]["messages"][-1]["content"]
        assert SYSTEM["content"] not in str(asked(on)[-1])


async def test_a_fold_stays_in_use_after_a_restart_and_without_the_setting(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    async with stage(summarizer=ON_PREFIX, store=store) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await forty_turns(agent, on, 24)
        [*_, newest] = folds_of(agent)
        before = on.sent()[-1]
    async with stage(store=store) as on:
        again = on.agent(*agent.messages, options=with_tools())
        assert (await again.say("Where were we?")).fold == newest
        assert on.sent()[-1][: len(before)] == before
        assert asked(on) == []


async def test_instructions_that_change_all_the_time_are_summed_up_in_the_usual_way() -> None:
    async with stage(summarizer=ON_PREFIX) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        for number in range(30):
            agent.messages[0] = {"role": "system", "content": f"It is turn {number}."}
            answer = await agent.say(f"Turn {number}: {prose(number, 250)}")
            assert answer.status == 200
            await on.folded()
        assert folds_of(agent)
        assert len(asked(on)) <= 5
        assert all(BEGIN in body["messages"][-1]["content"] for body in asked(on))


async def test_what_does_not_fit_behind_the_conversation_is_asked_for_in_the_usual_way() -> None:
    long = {**ON_PREFIX, "prompt": prose(3, 6_000)}
    async with stage(summarizer=long) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await forty_turns(agent, on)
        assert folds_of(agent)
        assert on.refused() == 0
        assert all(BEGIN in body["messages"][-1]["content"] for body in asked(on))
