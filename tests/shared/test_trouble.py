"""What happens to a shared store while replicas are at work, and what requests notice of it: nothing.

Every conversation has a word of its own in each of its messages, so that a fold of another would be seen.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.folding.agent import Agent, prose, small
from tests.shared.replicas import SYSTEM, Replicas, replicas, wire
from tests.simulator.talk import Message, user
from tests.store.servers import PATIENCE, Server, cluster, off_loop, watched

CONVERSATIONS = 4
_BREATH = 0.05  # seconds between an answer and the next turn
_WORD = re.compile(rb"conversation-[0-9]+")


@dataclass(slots=True)
class Load:
    """Conversations that go on all the time, each turn of them at another replica."""

    on: Replicas
    agents: Sequence[Agent]
    turns: list[int] = field(default_factory=list)
    _talks: list[asyncio.Future[None]] = field(default_factory=list)
    _goes_on: bool = True

    def begin(self) -> None:
        self.turns = [0] * len(self.agents)
        self._talks = [asyncio.ensure_future(self._talk(number)) for number in range(len(self.agents))]

    async def more_turns(self, turns: int = 3) -> None:
        """Until each conversation has had so many more."""
        wanted = [before + turns for before in self.turns]
        await self.sees(lambda: all(now >= then for now, then in zip(self.turns, wanted, strict=True)))

    async def sees(self, condition: Callable[[], bool]) -> None:
        """Looked at with every request that goes by."""
        await self.on.upstream.wait_until(lambda: condition() or self._is_over(), timeout=PATIENCE)
        assert condition()

    async def end(self) -> None:
        """The first failure is the test's."""
        self._goes_on = False
        await asyncio.gather(*self._talks)
        await self.on.settled()

    def is_down(self) -> bool:
        return all(proxy.metric("tailfold_store_up") == 0 for proxy in self.on.proxies)

    def is_up(self) -> bool:
        return all(proxy.metric("tailfold_store_up") == 1 for proxy in self.on.proxies)

    def _is_over(self) -> bool:
        return any(talk.done() for talk in self._talks)

    async def _talk(self, number: int) -> None:
        agent = self.agents[number]
        while self._goes_on:
            agent.base_url = self.on.proxies[self.turns[number] % len(self.on.proxies)].base_url
            answer = await agent.say(said(number, self.turns[number]))
            assert answer.status == 200, answer.body
            self.turns[number] += 1
            await asyncio.sleep(_BREATH)


def said(number: int, turn: int) -> str:
    return f"conversation-{number} turn {turn}: {prose(turn + number, 220)}"


def begun(number: int) -> list[Message]:
    """Nearly full: the first folds are due in a few turns."""
    earlier: list[Message] = []
    for turn in range(16):
        earlier += [user(f"conversation-{number} before {turn}: {prose(turn, 200)}")]
        earlier += [{"role": "assistant", "content": f"conversation-{number} done {turn}: {prose(turn, 30)}"}]
    return [SYSTEM, *earlier]


@asynccontextmanager
async def load(*urls: str, **settings: Any) -> AsyncIterator[Load]:
    """Begun when every conversation has been folded. Of all its requests none is refused, and none holds
    anything of another conversation.
    """
    async with replicas(*urls, config=small(recorded_requests=10_000), patient=False, **settings) as on:
        one = Load(on, [on.agent(*begun(number)) for number in range(CONVERSATIONS)])
        one.begin()
        try:
            await one.sees(lambda: all(is_folded(agent) for agent in one.agents))
            yield one
        finally:
            await one.end()
        assert {answer.status for agent in one.agents for answer in agent.answers} == {200}
        assert on.metric("tailfold_overflows_total") == 0
        for received in on.upstream.requests:
            assert len({*_WORD.findall(received.body)}) == 1


def is_folded(agent: Agent) -> bool:
    return bool(agent.answers) and agent.answers[-1].fold is not None


async def sharing_again(one: Load) -> None:
    """What one replica knows the others know: all send the same, and nothing more is summed up for it."""
    await one.sees(one.is_up)
    await one.more_turns()
    await one.end()
    async with asyncio.timeout(PATIENCE):
        while not await all_send_the_same(one):
            await one.on.settled()


async def all_send_the_same(one: Load) -> bool:
    summaries, same = len(one.on.upstream.summary_calls()), True
    for number, agent in enumerate(one.agents):
        bodies = {await sent_by(one, at, agent, said(number, 1_000)) for at in range(len(one.on.proxies))}
        same = same and len(bodies) == 1
    return same and len(one.on.upstream.summary_calls()) == summaries


async def sent_by(one: Load, at: int, agent: Agent, text: str) -> bytes:
    """A branch, so that the same can be asked of every replica."""
    branch = agent.copy()
    branch.base_url = one.on.proxies[at].base_url
    branch.messages.append(user(text))
    assert (await branch.send()).status == 200
    await one.on.settled()
    return one.on.bodies()[-1]


async def test_a_server_that_dies_and_comes_back_empty(valkey: Server) -> None:
    async with load(valkey.url, valkey.url) as one:
        await off_loop(valkey.kill)
        await one.sees(one.is_down)
        await one.more_turns(6)
        await off_loop(valkey.start)
        await sharing_again(one)


async def test_a_server_that_is_emptied_under_load(valkey: Server) -> None:
    async with load(valkey.url, valkey.url) as one:
        for _ in range(3):
            await off_loop(valkey.flush)
            await one.more_turns(2)
        await sharing_again(one)


async def test_a_server_that_freezes_and_goes_on(valkey: Server) -> None:
    async with load(valkey.url, valkey.url) as one:
        valkey.freeze()
        await one.sees(one.is_down)
        await one.more_turns(6)
        valkey.thaw()
        await sharing_again(one)


async def test_a_server_that_becomes_read_only(valkey: Server) -> None:
    async with load(valkey.url, valkey.url) as one:
        await off_loop(lambda: valkey.client.execute_command("REPLICAOF", "127.0.0.1", "1"))
        await one.sees(one.is_down)
        assert one.on.metric("tailfold_store_outages_total", reason="readonly") >= 1
        await one.more_turns(6)
        await off_loop(lambda: valkey.client.execute_command("REPLICAOF", "NO", "ONE"))
        await sharing_again(one)


async def test_a_server_that_has_no_memory_left(valkey: Server) -> None:
    async with load(valkey.url, valkey.url) as one:
        await off_loop(lambda: valkey.client.config_set("maxmemory", "1"))
        await one.sees(one.is_down)
        assert one.on.metric("tailfold_store_outages_total", reason="full") >= 1
        await one.more_turns(6)
        await off_loop(lambda: valkey.client.config_set("maxmemory", "0"))
        await sharing_again(one)


async def test_a_server_that_evicts_what_it_likes(valkey: Server) -> None:
    valkey.client.config_set("maxmemory-policy", "allkeys-random")
    async with load(valkey.url, valkey.url) as one:
        used = int((await off_loop(valkey.client.info))["used_memory"])
        await off_loop(lambda: valkey.client.config_set("maxmemory", str(used + 50_000)))
        await one.more_turns(8)
        evicted = (await off_loop(valkey.client.info))["evicted_keys"]
        await off_loop(lambda: valkey.client.config_set("maxmemory", "0"))
        assert evicted > 0
        await sharing_again(one)


async def test_values_that_somebody_overwrites_with_junk(valkey: Server) -> None:
    chance = random.Random(7)
    async with load(valkey.url, valkey.url) as one:
        for _ in range(4):
            await off_loop(partial(overwrite, valkey.client, chance))
            await one.more_turns(2)
        await sharing_again(one)
        assert one.on.metric("tailfold_store_foreign_values_total") > 0


def overwrite(client: Any, chance: random.Random) -> None:
    """Other kinds, other values, and values of each other."""
    names = client.keys("tailfold:*")
    hashes = [name for name in names if client.type(name) == b"hash"]
    values = [value for name in hashes for value in client.hvals(name)]
    for name in names:
        match chance.randrange(4):
            case 0:
                # In one step, or a replica puts a hash in between.
                client.pipeline().delete(name).lpush(name, "junk").execute()
            case 1 if name in hashes:
                junk = {
                    each: chance.choice([chance.randbytes(40), b"", *values]) for each in client.hkeys(name)
                }
                client.hset(name, mapping=junk)
            case 2 if name not in hashes:
                client.set(name, chance.choice([chance.randbytes(40), b"", *values]), keepttl=True)
            case _:
                pass


async def test_a_master_that_dies_and_is_followed_by_its_replica() -> None:
    with watched() as sentinel:
        async with load(sentinel.url, sentinel.url) as one:
            await off_loop(sentinel.fail_over)
            await sharing_again(one)


async def test_a_node_of_a_cluster_that_dies_and_is_followed_by_its_replica() -> None:
    with cluster() as nodes:
        async with load(nodes.url, nodes.url) as one:
            await off_loop(nodes.fail_over)
            await sharing_again(one)


async def test_of_a_frozen_server_nothing_is_asked_but_to_see_whether_it_is_back(valkey: Server) -> None:
    """Who asks waits for as long as `redis.timeout` says: so that is how often anybody waits."""
    async with wire(valkey.port) as one_wire, load(one_wire.url, redis={"pause": 300.0}) as one:
        valkey.freeze()
        await one.sees(one.is_down)
        asked = one_wire.questions
        await one.more_turns(10)
        assert one_wire.questions == asked
        valkey.thaw()
        await one.end()
