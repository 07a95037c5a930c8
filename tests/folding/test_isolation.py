"""Nothing of one conversation reaches another, and many at once share what they may."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import orjson
import pytest

from tests.folding.agent import Agent, Stage, prose, small, stage

SYSTEM = {"role": "system", "content": "You look after the harbour."}


def full(on: Stage, *, key: str = "sk-one", secret: str = "") -> Agent:
    """A conversation at its trigger."""
    agent = on.agent(SYSTEM, key=key)
    for number in range(32):
        role = "assistant" if number % 2 else "user"
        agent.messages.append({"role": role, "content": f"Part {number}: {secret} {prose(number, 170)}"})
    agent.messages.append({"role": "user", "content": "Where were we?"})
    return agent


async def test_fifty_requests_at_the_trigger_make_one_summary() -> None:
    async with stage() as on:
        agent = full(on)
        answers = await asyncio.gather(*(agent.send() for _ in range(50)))
        await on.folded()
        assert {answer.status for answer in answers} == {200}
        assert len(on.upstream.summary_calls()) == 1


async def test_fifty_requests_that_do_not_fit_wait_for_one_summary() -> None:
    async with stage() as on:
        agent = full(on)
        agent.messages.append({"role": "assistant", "content": prose(3, 2_500)})
        agent.messages.append({"role": "user", "content": "Go on."})
        answers = await asyncio.gather(*(agent.send() for _ in range(50)))
        assert {answer.status for answer in answers} == {200}
        assert {answer.action for answer in answers} <= {"fold", "reuse"}
        assert len({answer.fold for answer in answers}) == 1
        assert len(on.upstream.summary_calls()) == 1


async def test_two_callers_with_the_same_words_and_the_same_header_share_nothing() -> None:
    async with stage() as on:
        one, other = full(on, key="sk-one"), full(on, key="sk-other")
        for agent in (one, other):
            agent.headers["X-Conversation-Id"] = "the-same"
            await agent.step()
            await on.folded()
            await agent.say("And then? " + prose(9, 900))
        assert one.answers[-1].action == other.answers[-1].action == "fold"
        assert one.answers[-1].fold != other.answers[-1].fold
        asked = [received.header("authorization") for received in on.upstream.summary_calls()]
        assert sorted(asked) == ["Bearer sk-one", "Bearer sk-other"]


async def test_two_hundred_look_alikes_are_never_given_anothers_fold() -> None:
    """The same instructions and the same first message; edits, branches and answers generated anew."""
    dice = random.Random(7)
    config = small(1_500, cache_min_tokens=None)
    async with stage(config, models={"gpt-4o": {"window": 1_500}}) as on:
        agents = [on.agent(SYSTEM, options={"max_tokens": 20}) for _ in range(200)]
        marks: dict[int, set[str]] = {}
        for agent in agents:
            agent.messages.append({"role": "user", "content": "Hello, please help me."})
            agent.messages.append({"role": "assistant", "content": "With pleasure."})
            marks[id(agent)] = set()
        for turn in range(9):
            dice.shuffle(agents)
            for batch in range(0, len(agents), 20):
                await asyncio.gather(
                    *(
                        _turn(agent, turn, marks, random.Random(turn * 1000 + place))
                        for place, agent in enumerate(agents[batch : batch + 20], batch)
                    )
                )
            await on.folded()
        assert on.proxy.metric("tailfold_actions_total", action="fold") > 100
        assert on.proxy.metric("tailfold_overflows_total") == 0


async def _turn(agent: Agent, turn: int, marks: dict[int, set[str]], dice: random.Random) -> None:
    what = dice.random()
    if what < 0.1 and len(agent.messages) > 5:  # an answer generated anew
        agent.messages.pop()
        assert (await agent.step()).status == 200
        return
    if what < 0.2 and len(agent.messages) > 7:  # an edit: the last two turns are said in another way
        gone = agent.messages[-4:]
        agent.messages = agent.messages[:-4]
        for mark in [mark for mark in marks[id(agent)] if mark in str(gone)]:
            marks[id(agent)].discard(mark)
    mark = f"mark-{id(agent):x}-{turn}"
    agent.messages.append({"role": "user", "content": f"{mark} {prose(turn, 160)}"})
    answer = await agent.step()
    assert answer.status == 200
    marks[id(agent)].add(mark)


async def test_no_mark_of_another_conversation_is_ever_sent() -> None:
    async with stage(small(1_500, cache_min_tokens=None), models={"gpt-4o": {"window": 1_500}}) as on:
        agents = [on.agent(SYSTEM, options={"max_tokens": 20}) for _ in range(12)]
        for turn in range(16):
            for number, agent in enumerate(agents):
                agent.messages.append({"role": "user", "content": f"caller{number:02} {prose(turn, 150)}"})
            await asyncio.gather(*(agent.step() for agent in agents))
            await on.folded()
        folded = 0
        for sent in on.sent():
            text = str(sent)
            named = {number for number in range(12) if f"caller{number:02}" in text}
            assert len(named) == 1
            folded += "record of the conversation so far" in text
        assert folded > 12


@pytest.mark.parametrize(
    "headers", [{"X-Tailfold-Mode": "observe"}, {"X-Tailfold-Mode": "off"}, {"X-Tailfold-Strategy": "off"}]
)
async def test_where_nothing_is_to_be_folded_the_body_is_forwarded_byte_for_byte(
    headers: dict[str, str],
) -> None:
    async with stage() as on:
        agent = full(on)
        agent.messages.append({"role": "assistant", "content": prose(3, 600)})
        agent.messages.append({"role": "user", "content": "Go on."})
        said = {"model": agent.model, "messages": agent.messages, "stream": True}
        body = orjson.dumps(said, option=orjson.OPT_INDENT_2)
        async with on.session.post(
            f"{on.proxy.base_url}/chat/completions",
            data=body,
            headers={"Authorization": "Bearer sk-one", "Content-Type": "application/json", **headers},
        ) as answer:
            assert answer.status == 200
            told = answer.headers["X-Tailfold-Action"]
        assert on.upstream.requests[-1].body == body
        assert on.upstream.summary_calls() == []
        assert told == ("observe, fold" if headers.get("X-Tailfold-Mode") == "observe" else "pass")


async def test_a_request_may_wish_for_another_threshold_and_tail() -> None:
    async with stage() as on:
        agent = full(on)
        agent.messages = [*agent.messages[:18], {"role": "user", "content": "Where were we?"}]
        calm = await agent.send()
        assert calm.action == "pass"
        await agent.send(**{"X-Tailfold-Threshold": "0.4", "X-Tailfold-Retain-Tokens": "10%"})
        await on.folded()
        eager = await agent.send(**{"X-Tailfold-Threshold": "0.4", "X-Tailfold-Retain-Tokens": "10%"})
        assert eager.action == "fold"
        assert int(eager.headers["X-Tailfold-Tokens"]) < int(calm.headers["X-Tailfold-Tokens"]) / 2


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Tailfold-Threshold", "0"),
        ("X-Tailfold-Threshold", "much"),
        ("X-Tailfold-Threshold", "nan"),
        ("X-Tailfold-Retain-Tokens", "-5"),
        ("X-Tailfold-Retain-Tokens", "200%"),
        ("X-Tailfold-Strategy", "shorten"),
        ("X-Tailfold-Mode", "sometimes"),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_in_openais_shape(header: str, value: str) -> None:
    async with stage() as on, aiohttp.ClientSession() as session:
        agent = on.agent({"role": "user", "content": "Hello."})
        agent.session = session
        answer = await agent.send(**{header: value})
        assert answer.status == 400
        assert answer.body["error"]["type"] == "tailfold_error"
        assert header in answer.body["error"]["message"]
        assert on.upstream.requests == []
