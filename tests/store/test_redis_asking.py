"""Asking real servers while connections are cut, slots move and masters die."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from proxy.store.redis_asking import Asking
from tests.shared.replicas import wire
from tests.store.doubles import PATIENCE
from tests.store.reaching import HOMES, asking, keep, kept, place, reached
from tests.store.servers import (
    Cluster,
    Server,
    Servers,
    Watched,
    cluster,
    is_whole,
    off_loop,
    told,
    until,
    watched,
)

KEYS = [b"{%d}" % number for number in range(200)]
ONE_OF_EACH = pytest.mark.parametrize("kind", ["valkey", "sentinel", "cluster"])


@pytest.fixture(scope="module")
def unruly() -> Iterator[Cluster]:
    """A cluster whose servers change their roles; each test leaves it whole."""
    with cluster() as one:
        yield one


def owner(on: Cluster, home: bytes) -> Server:
    """Who keeps what was stored there."""
    masters = (node for node in on.nodes if node.client.info("replication")["role"] == "master")
    return next(node for node in masters if has(node, home))


def has(node: Server, home: bytes) -> bool:
    slot = node.client.execute_command("CLUSTER KEYSLOT", place(home))
    return bool(node.client.execute_command("CLUSTER COUNTKEYSINSLOT", slot))


def replica_of(on: Cluster, master: Server) -> Server:
    return next(
        node for node in on.nodes if node.client.info("replication").get("master_port") == master.port
    )


def name(node: Server) -> Any:
    return node.client.execute_command("CLUSTER MYID")


async def ask(what: Asking, *keys: bytes) -> list[Any]:
    return await what.answers([("GET", key) for key in keys])


async def fill(what: Asking) -> None:
    assert set(await what.answers([("SET", key, key) for key in KEYS])) <= {True, b"OK"}


@ONE_OF_EACH
async def test_answers_come_in_the_order_of_the_questions(servers: Servers, kind: str) -> None:
    async with asking(servers.empty(kind)) as what:
        await fill(what)
        assert await ask(what, *reversed(KEYS), b"absent") == [*reversed(KEYS), None]
        assert await what.answers([]) == []


@ONE_OF_EACH
async def test_after_a_batch_was_cancelled_nobody_gets_the_answer_of_another(
    servers: Servers, kind: str
) -> None:
    async with asking(servers.empty(kind)) as what:
        await fill(what)
        for turns in range(150):
            batch = asyncio.ensure_future(ask(what, *KEYS[:100]))
            others = [asyncio.ensure_future(ask(what, *KEYS[start:150])) for start in (100, 120)]
            for _ in range(turns // 3):
                await asyncio.sleep(0)
            batch.cancel()
            assert await ask(what, *KEYS[150:]) == KEYS[150:]
            assert await asyncio.gather(*others) == [KEYS[100:150], KEYS[120:150]]
            await asyncio.wait([batch])


@ONE_OF_EACH
async def test_an_error_is_the_answer_to_one_command_and_not_to_its_neighbours(
    servers: Servers, kind: str
) -> None:
    async with asking(servers.empty(kind)) as what:
        await fill(what)
        answers = await what.answers([("GET", KEYS[0]), ("HGET", KEYS[0], b"f"), ("GET", KEYS[1])])
        assert answers[0::2] == KEYS[:2]
        assert "WRONGTYPE" in str(answers[1])


@pytest.mark.parametrize("kind", ["valkey", "sentinel"])
async def test_a_connection_that_was_cut_while_nobody_asked_is_no_trouble(
    servers: Servers, kind: str
) -> None:
    async with asking(servers.empty(kind)) as what:
        await fill(what)
        one = servers.started(kind)
        await asyncio.gather(*(ask(what, key) for key in KEYS[:8]))  # several connections
        (one.master if isinstance(one, Watched) else one).cut()
        assert await asyncio.gather(*(ask(what, key) for key in KEYS[:8])) == [[key] for key in KEYS[:8]]


async def test_neither_are_the_connections_of_a_cluster(servers: Servers) -> None:
    async with asking(servers.empty("cluster")) as what:
        await fill(what)
        await asyncio.gather(*(ask(what, key) for key in KEYS[:8]))
        for node in servers.started("cluster").nodes:
            node.cut()
        assert await ask(what, *KEYS) == KEYS


async def test_a_question_whose_connection_is_cut_is_asked_once_more_and_not_twice(servers: Servers) -> None:
    servers.empty("valkey")
    async with wire(servers.started("valkey").port) as rough, asking(rough.url) as what:
        await fill(what)
        rough.cuts = 1
        assert await ask(what, *KEYS) == KEYS
        rough.cuts = 2
        answers = await ask(what, *KEYS)
        assert all(isinstance(answer, ConnectionError) for answer in answers)
        assert rough.cuts == 0
        assert await ask(what, *KEYS) == KEYS


async def test_a_server_that_was_started_anew_is_asked_without_further_ado(valkey: Server) -> None:
    async with asking(valkey.url) as what:
        await fill(what)
        valkey.kill()
        assert all(isinstance(answer, ConnectionError) for answer in await ask(what, *KEYS))
        await off_loop(valkey.start)
        assert await ask(what, *KEYS) == [None] * len(KEYS)


async def test_after_a_failover_the_sentinel_is_asked_for_the_new_master() -> None:
    with watched() as one:
        async with asking(one.url) as what:
            await fill(what)
            until(lambda: one.replica.client.dbsize() == len(KEYS), "the replica has it all")
            await off_loop(one.fail_over)
            await off_loop(partial(until, partial(_names, one, one.replica), "the Sentinel knows"))
            assert await ask(what, *KEYS) == KEYS


def _names(one: Watched, server: Server) -> bool:
    master = told(one.sentinel.client.execute_command("SENTINEL", "MASTER", "mymaster"))
    return (master["port"], master["flags"]) == (str(server.port), "master")


def _follows(server: Server) -> bool:
    return bool(server.client.info("replication")["role"] == "slave")


async def test_a_master_that_was_made_a_replica_leads_back_to_the_sentinel() -> None:
    with watched() as one:
        async with asking(one.url) as what:
            await fill(what)
            order = partial(one.sentinel.client.execute_command, "SENTINEL", "FAILOVER", "mymaster")
            await off_loop(partial(until, order, "it has a replica that it may promote"))
            await off_loop(partial(until, partial(_names, one, one.replica), "the Sentinel knows"))
            await off_loop(partial(until, partial(_follows, one.master), "they have changed places"))
            await fill(what)
            assert await ask(what, *KEYS) == KEYS
            assert one.replica.client.dbsize() == len(KEYS)


async def test_while_the_sentinels_are_away_the_master_is_asked_all_the_same() -> None:
    with watched() as one:
        async with asking(one.url) as what:
            await fill(what)
            one.sentinel.kill()
            assert await ask(what, *KEYS) == KEYS


async def test_a_slot_on_its_way_to_a_server_that_has_just_joined_is_found(unruly: Cluster) -> None:
    newcomer = Server("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    try:
        async with reached(unruly.url) as store:
            await keep(store)
            source = owner(unruly, HOMES[0])
            slot = source.client.execute_command("CLUSTER KEYSLOT", place(HOMES[0]))
            newcomer.start()
            newcomer.client.execute_command("CLUSTER MEET", "127.0.0.1", source.port)
            until(lambda: is_whole(newcomer), "it has joined")
            until(lambda: all(_knows(node, newcomer) for node in unruly.nodes), "all know it")
            newcomer.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", name(source))
            source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", name(newcomer))
            source.client.execute_command("MIGRATE", "127.0.0.1", newcomer.port, place(HOMES[0]), 0, 5000)
            assert await asyncio.gather(*(kept(store) for _ in range(20))) == [b"v"] * 20  # ASK
            await keep(store, value=b"w")
            assert await kept(store) == b"w"
            for node in (newcomer, source):
                node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", name(newcomer))
            assert await kept(store) == b"w"  # MOVED
            # And back.
            source.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", name(newcomer))
            newcomer.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", name(source))
            newcomer.client.execute_command("MIGRATE", "127.0.0.1", source.port, place(HOMES[0]), 0, 5000)
            source.client.execute_command("CLUSTER SETSLOT", slot, "NODE", name(source))
            assert await kept(store) == b"w"
    finally:
        identity = name(newcomer)
        newcomer.close()
        for node in unruly.nodes:
            node.client.execute_command("CLUSTER FORGET", identity)


def _knows(node: Server, other: Server) -> bool:
    return f"127.0.0.1:{other.port}" in str(node.client.execute_command("CLUSTER NODES"))


async def test_a_master_that_changes_places_with_its_replica_is_no_trouble(unruly: Cluster) -> None:
    async with reached(unruly.url) as store:
        for home in HOMES:
            await keep(store, home)
        old = owner(unruly, HOMES[0])
        new = replica_of(unruly, old)
        until(lambda: new.client.info("replication")["master_link_status"] == "up", "it follows")
        new.client.execute_command("CLUSTER FAILOVER")
        await off_loop(partial(until, lambda: _follows(old), "they have changed places"))
        assert [await kept(store, home) for home in HOMES] == [b"v"] * len(HOMES)
        for home in HOMES:
            await keep(store, home, b"w")
        assert [await kept(store, home) for home in HOMES] == [b"w"] * len(HOMES)
        await off_loop(partial(until, lambda: all(map(is_whole, unruly.nodes)), "the cluster is whole"))


async def test_one_server_down_takes_nothing_from_the_others_and_its_replica_is_found_at_once(
    unruly: Cluster,
) -> None:
    async with reached(unruly.url) as store, asking(unruly.url) as what:
        for home in HOMES:
            await keep(store, home)
        victim = owner(unruly, HOMES[0])
        heir = replica_of(unruly, victim)
        until(lambda: heir.client.info("replication")["master_link_status"] == "up", "it follows")
        theirs = [home for home in HOMES if has(victim, home)]
        others = [home for home in HOMES if home not in theirs]
        batch = [("EXISTS", place(home)) for home in (*theirs, *others)]
        assert set(await what.answers(batch)) == {1}
        victim.kill()
        answers = await what.answers(batch)
        assert all(isinstance(answer, Exception) for answer in answers[: len(theirs)])
        assert answers[len(theirs) :] == [1] * len(others)
        promoted = partial(until, lambda: heir.client.info("replication")["role"] == "master", "promoted")
        await off_loop(promoted)
        alive = [node for node in unruly.nodes if node is not victim]
        await off_loop(partial(until, lambda: all(map(is_whole, alive)), "the cluster is whole"))
        # No restart, no pause: who takes over is found by the next question.
        assert set(await what.answers(batch)) == {1}
        assert [await kept(store, home) for home in HOMES] == [b"v"] * len(HOMES)
    victim.start()
    until(lambda: _follows(victim) and all(map(is_whole, unruly.nodes)), "it is back")


async def test_a_frozen_server_is_asked_once_and_leaves_the_others_their_answers(servers: Servers) -> None:
    async with asking(servers.empty("cluster"), timeout=1.0) as what:
        await fill(what)
        frozen, *_ = servers.started("cluster").nodes
        frozen.freeze()
        try:
            answers = await ask(what, *KEYS)
        finally:
            frozen.thaw()
        silent = [key for key, answer in zip(KEYS, answers, strict=True) if isinstance(answer, Exception)]
        assert 0 < len(silent) < len(KEYS)
        assert [answer for answer in answers if not isinstance(answer, Exception)] == [
            key for key in KEYS if key not in silent
        ]
    async with asking(servers.started("cluster").url, timeout=PATIENCE) as what:
        assert await ask(what, *KEYS) == KEYS
