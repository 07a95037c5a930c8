"""Whatever the summary model or the upstream's template does, the client's request is answered."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from proxy.simulator.config import Summaries
from tests.fold.validator import faults
from tests.folding.agent import Agent, Stage, prose, small, stage, with_tools
from tests.simulator.talk import Message

SYSTEM = {"role": "system", "content": "You look after the harbour."}
BAD: list[Summaries] = ["error", "hang", "empty", "echo", "refusal", "tool_call", "inflated"]


async def talk(agent: Agent, turns: int, *, words: int = 250) -> None:
    for number in range(turns):
        call = "call:look " if number % 3 == 1 else ""
        answer = await agent.say(f"{call}Turn {number}: {prose(number, words)}", result=prose(number, 100))
        assert answer.status == 200, answer.body


async def until_a_summary_is_asked_for(agent: Agent, on: Stage) -> None:
    """One is begun with the first answer to a request past the soft trigger: 0.8 of 0.95 of the room."""
    await talk(agent, 1)
    while int(agent.answers[-1].headers["X-Tailfold-Tokens"]) <= 5_700:
        await talk(agent, 1, words=100)
    await on.upstream.wait_until(lambda: on.upstream.active > 0, timeout=60)


def actions(agent: Agent) -> set[str]:
    return {answer.action for answer in agent.answers}


@pytest.mark.parametrize("manner", BAD)
async def test_with_a_bad_summary_model_every_turn_is_answered(manner: Summaries) -> None:
    waiting = {"timeout": 0.3, "max_wait": 0.1}
    async with stage(small(summaries=manner), summarizer=waiting) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 45)
        assert actions(agent) >= {"extract", "reuse"}
        assert on.refused() == 0
        assert all(faults(sent) == [] for sent in on.sent())
        warned = {warning for answer in agent.answers for warning in answer.warnings}
        assert warned & {"summary_failed", "summary_late", "summary_model_failing"}
        # It is asked again less and less often, not at every turn.
        assert len(on.upstream.summary_calls()) < 20


async def test_nobody_waits_for_a_summary_who_need_not() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        with on.upstream.holding_summaries():
            await until_a_summary_is_asked_for(agent, on)
            await talk(agent, 3, words=100)  # each of these is answered while the summary is held
        assert {answer.action for answer in agent.answers} == {"pass"}
        await on.folded()
        assert len(on.upstream.summary_calls()) == 1
        await talk(agent, 6)
        assert "fold" in actions(agent)


async def test_a_request_that_does_not_fit_waits_for_the_summary_that_is_being_made() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        with on.upstream.holding_summaries():
            await until_a_summary_is_asked_for(agent, on)
            agent.messages.append({"role": "user", "content": prose(1, 3_000)})
            waiting = asyncio.ensure_future(agent.step())
            await asyncio.sleep(0)
            assert not waiting.done()
        answer = await waiting
        assert (answer.status, answer.action, answer.warnings) == (200, "fold", [])
        assert len(on.upstream.summary_calls()) == 1


async def test_a_client_that_leaves_does_not_take_the_summary_with_it() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        for number in range(50):
            role = "assistant" if number % 2 else "user"
            agent.messages.append({"role": role, "content": f"Part {number}: {prose(number, 200)}"})
        agent.messages.append({"role": "user", "content": "Where were we?"})
        with on.upstream.holding_summaries():
            leaving = asyncio.ensure_future(agent.send())
            await on.upstream.wait_until(lambda: on.upstream.active > 0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        await on.folded()
        answer = await agent.step()
        assert (answer.status, answer.action) == (200, "fold")
        assert len(on.upstream.summary_calls()) == 1


async def test_the_summary_goes_to_a_cheap_model_with_the_callers_key_and_without_its_tools() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools(), key="sk-mine")
        await talk(agent, 24)
        await on.folded()
        asked = on.upstream.summary_calls()[0]
        assert asked.json()["model"] == "gpt-4o-mini"
        assert "tools" not in asked.json()
        assert asked.header("authorization") == "Bearer sk-mine"


async def test_where_the_cheap_model_is_not_served_the_conversations_own_writes() -> None:
    config = small(model_names=("gpt-4o",), any_model=False)
    async with stage(config) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 30)
        await on.folded()
        assert "fold" in actions(agent)
        assert on.upstream.summary_calls()[-1].json()["model"] == "gpt-4o"


async def test_a_template_that_takes_one_system_message_is_told_the_summary_in_another_form() -> None:
    config = small(strict_template=True)
    async with stage(config, compression={"summary_role": "system"}) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 40)
        assert "fold" in actions(agent)
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1


@pytest.mark.parametrize("role", ["auto", "append"])
async def test_with_the_usual_role_or_none_of_its_own_a_strict_template_has_nothing_to_refuse(
    role: str,
) -> None:
    async with stage(small(strict_template=True), compression={"summary_role": role}) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 40)
        assert "fold" in actions(agent)
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 0


async def test_a_server_that_cuts_silently_is_noticed_and_folded_for() -> None:
    config = small(4_000, overflow="truncate")
    async with stage(config) as on:
        agent = on.agent(SYSTEM)
        await talk(agent, 30)
        await on.folded()
        await talk(agent, 10)
        assert on.proxy.metric("tailfold_silent_truncations_total") >= 1
        assert {"fold", "reuse"} & actions(agent)
        assert int(agent.answers[-1].headers["X-Tailfold-Tokens"]) < 4_000


async def test_one_result_larger_than_the_window_is_cut_in_its_middle_and_stays_so() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 3)
        answer = await agent.say("call:look Read the whole log.", result=prose(5, 12_000))
        assert (answer.status, answer.action) == (200, "truncate")
        cut = on.sent()[-1]
        assert faults(cut) == []
        assert "characters left out here" in cut[-1]["content"]
        again = await agent.say("And what does it mean?")
        assert (again.status, again.action) == (200, "reuse")
        assert on.sent()[-1][: len(cut)] == cut


async def test_a_result_of_two_hundred_thousand_tokens_is_answered() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 3)
        log = " ".join(str(number % 1_000) for number in range(110_000))
        answer = await agent.say("call:look Read the whole log.", result=log)
        assert (answer.status, answer.warnings, on.refused()) == (200, [], 0)
        assert int(answer.headers["X-Tailfold-Original-Tokens"]) > 200_000
        sent = on.sent()[-1]
        assert faults(sent) == []
        assert sent[-1]["content"].startswith(log[:500])
        assert sent[-1]["content"].endswith(log[-500:])
        assert (await agent.say("And what does it mean?")).status == 200


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_file_of_a_hundred_thousand_tokens_that_was_written_in_one_call_is_answered(
    legacy: bool,
) -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 3)
        asked = {"role": "user", "content": "Write the whole log down."}
        agent.messages += [asked, *writing(prose(5, 80_000), legacy=legacy)]
        answer = await agent.step()
        assert (answer.status, on.refused()) == (200, 0)
        assert int(answer.headers["X-Tailfold-Original-Tokens"]) > 100_000
        sent = on.sent()[-1]
        assert faults(sent) == []
        assert sent.count(asked) == 1
        said, done = sent[-2:]
        assert done == agent.messages[-2]
        function = said["function_call"] if legacy else said["tool_calls"][0]["function"]
        arguments = orjson.loads(function["arguments"])
        assert (function["name"], list(arguments), arguments["mode"]) == ("look", ["text", "mode"], 0o644)
        assert "characters left out here" in arguments["text"]
        assert (await agent.say("Is it written?")).status == 200


def writing(text: str, *, legacy: bool) -> list[Message]:
    function = {"name": "look", "arguments": orjson.dumps({"text": text, "mode": 0o644}).decode()}
    said: Message = {"role": "assistant", "content": prose(3, 20_000)}
    if legacy:
        return [{**said, "function_call": function}, {"role": "function", "name": "look", "content": "done"}]
    called = {**said, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return [called, {"role": "tool", "tool_call_id": "call_1", "content": "done"}]


async def test_what_cannot_be_made_to_fit_is_forwarded_as_it_came_for_the_upstream_to_refuse() -> None:
    async with stage() as on:
        agent = on.agent(SYSTEM)
        await talk(agent, 3)
        agent.messages.append({"role": "user", "content": prose(7, 9_000)})
        answer = await agent.step()
        assert answer.status == 400
        assert answer.body["error"]["code"] == "context_length_exceeded"
        assert answer.warnings == ["does_not_fit"]
        assert on.sent()[-1] == agent.messages
        agent.messages.pop()
        await talk(agent, 1)


async def test_a_budget_for_summaries_is_kept_to() -> None:
    async with stage(summarizer={"daily_tokens": 1}) as on:
        agent = on.agent(SYSTEM, options=with_tools())
        await talk(agent, 60)
        assert len(on.upstream.summary_calls()) == 1
        assert {"fold", "extract"} <= actions(agent)
        assert "summary_budget" in {warning for answer in agent.answers for warning in answer.warnings}


async def rewriting(on: Stage, keeping: int) -> Agent:
    """A client that keeps the newest part of its history and summarises the rest itself, anew each turn."""
    agent = on.agent(SYSTEM)
    for number in range(60):
        agent.messages.append({"role": "user", "content": f"Turn {number}: {prose(number, 250)}"})
        assert (await agent.step()).status == 200
        await on.folded()
        if len(agent.messages) > keeping + 3:
            note = {"role": "user", "content": f"So far, as of turn {number}, all is well."}
            agent.messages = [SYSTEM, note, *agent.messages[-keeping:]]
    return agent


@pytest.mark.parametrize("keeping", [27, 37, 57])
async def test_a_client_that_rewrites_its_own_history_costs_no_summary_per_turn(keeping: int) -> None:
    """Whether what it keeps is nearly too much for the window, or far too much."""
    async with stage() as on:
        await rewriting(on, keeping)
        assert len(on.upstream.summary_calls()) <= 3
        assert on.refused() == 0


@pytest.mark.parametrize("tokens", [200, 9_000])
async def test_what_cannot_be_folded_and_does_not_fit_is_said_to(tokens: int) -> None:
    """Half of an emoji, as JavaScript leaves it: the body is forwarded as it came."""
    async with stage() as on:
        agent = on.agent(SYSTEM, {"role": "user", "content": f"{prose(1, tokens)} HALF"})
        body = orjson.dumps({"model": agent.model, "messages": agent.messages}).replace(b"HALF", b"\\ud83d")
        async with on.session.post(f"{agent.base_url}/chat/completions", data=body) as answer:
            # The upstream's own word on such a body is a 400, however long it is.
            assert answer.headers.get("X-Tailfold-Warning") == (None if tokens == 200 else "does_not_fit")
        assert on.upstream.chat_calls()[-1].body == body
