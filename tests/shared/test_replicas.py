"""Replicas on one store behave as one, and ask it once for what a request needs."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.folding.agent import MODEL, Agent, prose, small
from tests.folding.several import several, trimmed, window_for
from tests.folding.trimmers import CLIENTS, Client, newest
from tests.shared.replicas import SYSTEM, Replicas, Wire, replicas, wire
from tests.simulator.talk import Message, assistant, calls, result, user
from tests.store.servers import PATIENCE, Server, Servers

TURNS = 40


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
async def test_two_replicas_in_turn_send_the_bytes_of_one_and_make_as_many_folds(
    servers: Servers, kind: str
) -> None:
    sent, summaries = [], []
    for count in (1, 2):
        async with replicas(*[servers.empty(kind)] * count) as on:
            agent = on.agent(SYSTEM)
            answers = await on.talk(agent, 0, TURNS)
            assert {answer.status for answer in answers} == {200}
            assert on.metric("tailfold_store_outages_total") == 0
            sent.append(on.bodies())
            summaries.append(len(on.upstream.summary_calls()))
    assert sent[0] == sent[1]
    assert summaries[0] == summaries[1] >= 2


async def test_two_replicas_count_alike_whatever_the_client_makes_of_the_answers(valkey: Server) -> None:
    """It writes calls, results and answers of its own into its history: there is much to estimate, and each
    replica learns from every bill. The second conversation begins with the same instructions.
    """
    counted, sent = [], []
    for count in (1, 2):
        valkey.client.flushall()
        async with replicas(*[valkey.url] * count) as on:
            for begins in (0, 100):
                agent = on.agent(SYSTEM)
                for number in range(begins, begins + 30):
                    agent.base_url = on.proxies[number % count].base_url
                    agent.messages += a_turn(number)
                    answer = await agent.send()
                    assert answer.status == 200
                    counted.append((answer.headers["X-Tailfold-Tokens"], answer.action))
                    await on.settled()
            sent += on.bodies()
    half = len(sent) // 2
    assert counted[:half] == counted[half:]
    assert sent[:half] == sent[half:]
    assert {"fold", "reuse"} <= {action for _, action in counted}


def a_turn(number: int) -> list[Message]:
    ids = [f"call_{number}_{call}" for call in range(number % 3 + 1)]
    results = [result(call, f"{number} {json.dumps(prose(number, 60))} 0x{number:08x}") for call in ids]
    return [
        calls(*ids),
        *results,
        assistant(prose(number, 30)),
        user(f"Turn {number}: {prose(number + 7, 90)}"),
    ]


async def test_fifty_requests_at_two_replicas_at_the_trigger_ask_for_one_summary(servers: Servers) -> None:
    async with replicas(*[servers.empty("valkey")] * 2) as on:
        agent, number = on.agent(SYSTEM), 0
        while int(agent.answers[-1].headers["X-Tailfold-Tokens"] if agent.answers else 0) <= 5_300:
            await on.talk(agent, number, number + 1)
            number += 1
        assert not on.upstream.summary_calls()
        agent.messages.append({"role": "user", "content": prose(number, 700)})
        clients = [agent.copy() for _ in range(50)]
        for place, client in enumerate(clients):
            client.base_url = on.proxies[place % 2].base_url
        answers = await asyncio.gather(*(client.send() for client in clients))
        await on.settled()
        assert {answer.status for answer in answers} == {200}
        assert len(on.upstream.summary_calls()) == 1


async def test_a_request_asks_the_store_once_wherever_its_conversation_was_answered_before(
    valkey: Server,
) -> None:
    async with wire(valkey.port) as one, wire(valkey.port) as other, replicas(one.url, other.url) as on:
        agent = on.agent(SYSTEM)
        await on.talk(agent, 0, 24)
        assert any(answer.action == "reuse" for answer in agent.answers)
        asked = []
        for number in range(24, 36):
            at = on.proxies[number % 2]
            agent.base_url, watched = at.base_url, (one, other)[number % 2]
            agent.messages.append({"role": "user", "content": f"Turn {number}: {prose(number, 40)}"})
            asked.append(await questions_before_the_upstream(on, agent, watched))
            await on.settled()
        assert max(asked) <= 1, asked


async def questions_before_the_upstream(on: Replicas, agent: Agent, watched: Wire) -> int:
    """How often the store had been asked when the upstream got the request."""
    before, calls = watched.questions, len(on.upstream.chat_calls())
    step = asyncio.create_task(agent.step())
    await on.upstream.wait_until(lambda: len(on.upstream.chat_calls()) > calls, timeout=60)
    asked = watched.questions - before
    await step
    return asked


async def test_what_another_replica_has_counted_is_not_counted_again(servers: Servers) -> None:
    async with replicas(*[servers.empty("valkey")] * 2) as on:
        agent = on.agent(SYSTEM)
        await on.talk(agent, 0, 6)
        before = on.proxies[1].metric("tailfold_counting_seconds_count", basis="anchored")
        agent.base_url = on.proxies[1].base_url
        answer = await agent.say("And now?")
        assert answer.status == 200
        # The other's bill is known here.
        assert on.proxies[1].metric("tailfold_counting_seconds_count", basis="anchored") == before + 1


async def test_callers_of_two_replicas_find_nothing_of_each_other(servers: Servers) -> None:
    async with replicas(*[servers.empty("valkey")] * 2) as on:
        mine, theirs = on.agent(SYSTEM, key="sk-mine"), on.agent(SYSTEM, key="sk-theirs")
        await on.talk(mine, 0, 24)
        assert any(answer.fold for answer in mine.answers)
        theirs.messages = [*mine.messages]
        theirs.base_url = on.proxies[0].base_url
        summaries = len(on.upstream.summary_calls())
        answer = await theirs.say("Go on.")
        assert answer.status == 200
        assert answer.fold not in {each.fold for each in mine.answers}
        assert len(on.upstream.summary_calls()) > summaries


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
async def test_who_trims_its_history_costs_two_summaries_wherever_it_asks(
    servers: Servers, kind: str
) -> None:
    client, url = CLIENTS["the first and a few, from the beginning"], servers.empty(kind)
    async with several(await window_for(client, "over"), url, url, store_time_limit=PATIENCE) as on:
        assert await trimmed(on, client, {}) <= 2


async def test_a_trimmed_history_asks_the_store_once(valkey: Server) -> None:
    """Longer ones too, of which not all is asked for at once."""
    long = Client(newest(101), words=100, before=60)
    window = await window_for(long, "hard")
    async with (
        wire(valkey.port) as one,
        wire(valkey.port) as other,
        replicas(one.url, other.url, config=small(window), models={MODEL: {"window": window}}) as on,
    ):
        asked = []
        for number, messages in enumerate(long.requests[:16]):
            agent = on.agent(*messages, at=number % 2, options={"max_tokens": 100})
            asked.append(await questions_before_the_upstream(on, agent, (one, other)[number % 2]))
            await on.settled()
        # Until its folds have come to nothing older ones are looked for.
        assert max(asked[3:]) <= 1, asked
        assert len(on.upstream.summary_calls()) <= 2
