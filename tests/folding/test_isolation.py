"""Nothing of one conversation reaches another, and many at once share what they may."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import orjson
import pytest

from proxy.ports import NOBODY
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


async def test_two_callers_with_the_same_words_and_the_same_header_share_nothing(tmp_path: Path) -> None:
    async with stage(store=f"sqlite:///{tmp_path}/state.db") as on:
        one, other = full(on, key="sk-one"), full(on, key="sk-other")
        for agent in (one, other):
            agent.headers["X-Conversation-Id"] = "the-same"
            await agent.step()
            await on.folded()
            await agent.say(f"My word is of-{agent.key}. {prose(9, 1_500)}")
            await on.folded()
            await agent.say(f"And then? {prose(9, 5_000)}")
            await on.folded()
        assert [answer.action for answer in one.answers] == [answer.action for answer in other.answers]
        assert one.answers[1].action == "fold"
        assert not folds_of(one) & folds_of(other)
        for received in on.upstream.requests:
            foreign = {"sk-one": b"of-sk-other", "sk-other": b"of-sk-one"}[received.credential]
            assert foreign not in received.body
        assert len(on.upstream.summary_calls()) >= 2
    kept = stored_by_caller(tmp_path)
    mine, theirs = sorted(kept.values(), key=lambda facts: b"of-sk-other" in b"".join(facts.values()))
    assert {space for space, _ in mine} == {space for space, _ in theirs} >= {"folds", "messages", "counts"}
    shared = {space for space, _ in mine.keys() & theirs.keys()}
    assert shared <= {"windows", "lanes"}  # a model's name and today's date, under which each has its own
    assert b"of-sk-other" not in b"".join(mine.values())
    assert b"of-sk-one" not in b"".join(theirs.values())
    assert b"of-sk-one" in b"".join(mine.values())


def folds_of(agent: Agent) -> set[str]:
    return {answer.fold for answer in agent.answers if answer.fold}


def stored_by_caller(home: Path) -> dict[bytes, dict[tuple[str, bytes], bytes]]:
    kept: dict[bytes, dict[tuple[str, bytes], bytes]] = {}
    with closing(sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True)) as file:
        for tenant, space, key, value in file.execute("SELECT tenant, space, key, value FROM facts"):
            if tenant != NOBODY:
                kept.setdefault(tenant, {})[space, key] = value
    return kept


_MARK = re.compile(rb"mark-\d+-\d+")
_RECORD = re.compile(rb"record of the conversation so far.*?end of the record")


async def test_two_hundred_look_alikes_are_never_told_what_another_has_said() -> None:
    """The same instructions and the same first message; edits, branches and answers generated anew."""
    dice = random.Random(7)
    config = small(1_500, cache_min_tokens=None, recorded_requests=10_000)
    async with stage(config, models={"gpt-4o": {"window": 1_500}}) as on:
        said = Said()
        agents = [on.agent(SYSTEM, options={"max_tokens": 20}) for _ in range(180)]
        for agent in agents:
            agent.messages.append({"role": "user", "content": "Hello, please help me."})
            agent.messages.append({"role": "assistant", "content": "With pleasure."})
        for turn in range(9):
            if turn in (3, 6):
                agents += [agent.copy() for agent in dice.sample(agents, 10)]
            dice.shuffle(agents)
            for batch in range(0, len(agents), 20):
                turns = [said.turn(agent, turn, dice) for agent in agents[batch : batch + 20]]
                await asyncio.gather(*turns)
            await on.folded()
        assert len(agents) == 200
        assert on.proxy.metric("tailfold_actions_total", action="fold") > 100
        assert on.refused() == 0
        told = 0
        for received in on.upstream.chat_calls():
            marks = {*_MARK.findall(received.body)}
            assert marks <= said.by_request[received.header("x-probe")]
            record = _RECORD.search(received.body)
            told += record is not None and _MARK.search(record[0]) is not None
        assert told > 100  # of what was folded something is told
        for received in on.upstream.summary_calls():
            marks = {*_MARK.findall(received.body)}
            assert marks
            assert any(marks <= own for own in said.by_request.values())


class Said:
    """Which marks each request had in it when it was sent."""

    def __init__(self) -> None:
        self.by_request: dict[str, set[bytes]] = {}

    async def turn(self, agent: Agent, turn: int, dice: random.Random) -> None:
        what = dice.random()
        if what < 0.1 and len(agent.messages) > 5:  # an answer generated anew
            agent.messages.pop()
        else:
            if what < 0.2 and len(agent.messages) > 7:  # an edit: the last two turns are said in another way
                agent.messages = agent.messages[:-4]
            mark = f"mark-{len(self.by_request)}-{turn}"
            agent.messages.append({"role": "user", "content": f"{mark} {prose(turn, 160)}"})
        probe = agent.headers["X-Probe"] = str(len(self.by_request))
        self.by_request[probe] = {*_MARK.findall(orjson.dumps(agent.messages))}
        assert (await agent.step()).status == 200


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
