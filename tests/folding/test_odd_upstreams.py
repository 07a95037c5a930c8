"""What an upstream bills or refuses for reasons of its own must not cost a conversation its memory, and what
one caller provokes nothing to another.
"""

from __future__ import annotations

import pytest

from proxy.simulator import SimulatorConfig
from proxy.simulator.config import CacheIsBilled
from tests.folding.agent import Agent, prose, small, stage
from tests.simulator.talk import Message, user

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}


async def talk(agent: Agent, turns: int, words: int = 250) -> None:
    for _ in range(turns):
        number = len(agent.messages)
        assert (await agent.say(f"Turn {number}: {prose(number, words)}")).status == 200


@pytest.mark.parametrize("billed", ["beside", "not"])
@pytest.mark.parametrize("told", [True, False], ids=["a window that was set", "a window from the map"])
async def test_bills_without_what_was_cached_are_not_taken_for_a_small_window(
    billed: CacheIsBilled, told: bool
) -> None:
    config = SimulatorConfig(cache_is_billed=billed, cache_min_tokens=1)
    async with stage(config, models={"gpt-4o": {"window": 128_000}} if told else {}) as on:
        agent, other = on.agent(SYSTEM), on.agent(SYSTEM, key="sk-other")
        await talk(agent, 30)
        await talk(other, 6)
        answers = [*agent.answers, *other.answers]
        assert {answer.action for answer in answers} == {"pass"}
        assert {int(answer.headers["X-Tailfold-Limit"]) for answer in answers} == {121_500}
        assert on.sent()[-1] == other.messages[:-1]


async def test_what_was_cached_is_counted_though_it_is_billed_beside_the_rest() -> None:
    async with stage(SimulatorConfig(cache_is_billed="beside", cache_min_tokens=1), models={}) as on:
        agent = on.agent(SYSTEM)
        await talk(agent, 12)
        last = agent.answers[-1]
        true = last.billed + last.cached
        assert abs(int(last.headers["X-Tailfold-Tokens"]) - true) < 0.02 * true


async def test_a_request_that_is_refused_for_a_role_of_its_own_changes_nobody_s_summaries() -> None:
    async with stage(compression={"summary_role": "system"}) as on:
        agent = on.agent(SYSTEM)
        while not agent.answers or agent.answers[-1].action != "reuse":
            await talk(agent, 1)
        before = on.sent()[-1]
        bad = agent.copy()
        bad.key = "sk-other"
        bad.messages += [user("And now?"), {"role": "tool", "tool_call_id": "none", "content": "a result"}]
        assert (await bad.send()).status == 400
        await talk(agent, 1)
        assert on.sent()[-1][: len(before)] == before
        other = on.agent(*agent.messages, key="sk-third")
        assert (await other.say(prose(9, 3_000))).fold is not None
        assert [message["role"] for message in on.sent()[-1][:2]] == ["system", "system"]


async def test_a_template_that_refuses_a_summary_s_role_is_remembered_once_the_other_form_was_taken() -> None:
    config = small(strict_template=True)
    async with stage(config, compression={"summary_role": "system"}) as on:
        agent = on.agent(SYSTEM)
        while not any(answer.fold for answer in agent.answers):
            await talk(agent, 1)
        await talk(agent, 3)
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1
        other = on.agent(*agent.messages, key="sk-other")
        assert (await other.say(prose(9, 3_000))).fold is not None
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1


async def test_a_summary_that_is_refused_as_the_assistant_s_is_told_as_the_user_s() -> None:
    async with stage(small(alternating_template=True), compression={"summary_role": "assistant"}) as on:
        agent = on.agent(SYSTEM)
        while len({answer.fold for answer in agent.answers if answer.fold}) < 2:
            await talk(agent, 1)
            await on.folded()
        assert {answer.status for answer in agent.answers} == {200}
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1
        assert [said["role"] for said in on.sent()[-1][:4]] == ["system", "user", "assistant", "user"]


async def test_a_template_that_takes_nothing_but_turns_is_told_the_summary_in_one() -> None:
    """It says of a second system message what it says of two user messages in a row."""
    async with stage(small(alternating_template=True), compression={"summary_role": "system"}) as on:
        agent = on.agent(SYSTEM)
        while len({answer.fold for answer in agent.answers if answer.fold}) < 3:
            await talk(agent, 1)
            await on.folded()
        other = on.agent(*agent.messages, key="sk-other")
        assert (await other.say(prose(9, 3_000))).fold is not None
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1
        refused = [sent for sent in on.sent() if [said["role"] for said in sent[:2]] == ["system", "system"]]
        assert len(refused) == 1
        assert [said["role"] for said in on.sent()[-1][:4]] == ["system", "user", "assistant", "user"]


async def test_a_window_that_one_caller_makes_the_upstream_say_holds_for_that_caller_alone() -> None:
    said = (
        "This model's maximum context length is 1000 tokens. However, your messages resulted in 2000 tokens."
    )
    async with stage() as on:
        agent = on.agent(SYSTEM)
        await talk(agent, 3)
        bad = on.agent({"role": said, "content": prose(1, 2_500)}, user("hi"), key="sk-other")
        await bad.send()
        assert on.proxy.metric("tailfold_overflows_total") == 1
        await talk(agent, 1)
        assert {answer.action for answer in agent.answers} == {"pass"}
        assert len({answer.headers["X-Tailfold-Limit"] for answer in agent.answers}) == 1
