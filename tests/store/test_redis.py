"""The store on real servers, where it is more than the contract: trouble, strangers, clocks, sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from proxy.ports import COMMON, HOME_SIZE, NOBODY, Space, Store
from proxy.settings.redis_address import address_in
from proxy.store import envelope
from proxy.store.guarded import GuardedStore
from proxy.store.outage import Outage
from proxy.store.redis import RedisStore
from proxy.store.redis_keys import place_of
from proxy.tasks import Tasks
from tests.shared.replicas import wire
from tests.store.doubles import FOREVER, PATIENCE, Clock
from tests.store.reaching import ALICE, HOMES, as_the_docs_say, keep, kept, nodes_of, place, reached
from tests.store.servers import Server, Servers, off_loop, until

BOB = b"bob" * 10
KEY = HOMES[0] + b"k"


def fill_with_junk(client: Any, name: bytes) -> list[Callable[[], Any]]:
    """What somebody else may have put there."""
    good = envelope.sealed(b"another key", b"value", envelope.NEVER)
    values = [b"", b"junk", b"\x01" * 30, b"\x02" * 30, good, good[:12], b"\x02" + bytes(30)]
    return [
        *(partial(client.hset, name, b"k", value) for value in values),
        *(partial(client.set, name, value) for value in values),
        partial(client.rpush, name, "a", "b"),
        partial(client.sadd, name, "a"),
        partial(client.zadd, name, {"a": 1}),
        partial(client.xadd, name, {"a": 1}),
    ]


@pytest.mark.parametrize("space", [Space.FOLDS, Space.MESSAGES])
async def test_junk_in_our_place_is_nothing_and_makes_way(servers: Servers, space: Space) -> None:
    url, foreign = servers.empty("valkey"), list[int]()
    client = servers.started("valkey").client
    async with reached(url, on_foreign=foreign.append) as store:
        name, field = place_of(ALICE, space, KEY)
        field = field or b"k"
        for number, put in enumerate(fill_with_junk(client, name)):
            client.delete(name)
            put()
            seen = len(foreign)
            assert await store.get(ALICE, space, [KEY]) == {}, number
            assert len(foreign) > seen, number
            await store.put(ALICE, space, {KEY: b"ours"}, ttl=FOREVER)
            assert await store.get(ALICE, space, [KEY]) == {KEY: b"ours"}, number
            client.delete(name)
            put()
            assert await store.put_new(ALICE, space, KEY, b"won", ttl=FOREVER) == b"won", number
            assert await store.get(ALICE, space, [KEY]) == {KEY: b"won"}, number
            client.delete(name)
            put()
            await store.delete(ALICE, space, [KEY])
            assert await store.get(ALICE, space, [KEY]) == {}, number


async def test_junk_where_a_claim_should_be_is_no_claim(servers: Servers) -> None:
    async with reached(servers.empty("valkey")) as store:
        client, name = servers.started("valkey").client, place_of(ALICE, Space.CLAIMS, b"work").key
        for put in fill_with_junk(client, name):
            client.delete(name)
            put()
            await store.release(ALICE, b"work", b"me")
            assert await store.claim(ALICE, b"work", b"me", ttl=10)
            assert not await store.claim(ALICE, b"work", b"another", ttl=10)


async def test_what_somebody_has_copied_to_another_place_is_not_used(servers: Servers) -> None:
    foreign = list[int]()
    async with reached(servers.empty("valkey"), on_foreign=foreign.append) as store:
        client = servers.started("valkey").client
        for space in (Space.MESSAGES, Space.WINDOWS):
            await store.put(ALICE, space, {KEY: space.encode()}, ttl=FOREVER)
        client.copy(place_of(ALICE, Space.MESSAGES, KEY).key, place_of(BOB, Space.MESSAGES, KEY).key)
        client.copy(
            place_of(ALICE, Space.MESSAGES, KEY).key, place_of(ALICE, Space.WINDOWS, KEY).key, replace=True
        )
        assert await store.get(BOB, Space.MESSAGES, [KEY]) == {}
        assert await store.get(ALICE, Space.WINDOWS, [KEY]) == {}
        assert sum(foreign) == 2


async def test_what_was_kept_for_good_and_is_damaged_makes_way_for_the_next(servers: Servers) -> None:
    async with reached(servers.empty("valkey")) as store:
        client, name = servers.started("valkey").client, place_of(NOBODY, Space.SERVER, b"secret").key
        await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None)
        client.append(name, b"x")
        assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {}
        assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"second"


async def test_what_is_kept_for_good_is_kept_by_the_server_too(servers: Servers) -> None:
    async with reached(servers.empty("valkey")) as store:
        await store.put_new(NOBODY, Space.SERVER, b"secret", b"s", ttl=None)
        await store.put(NOBODY, Space.SERVER, {b"secret": b"other"}, ttl=1)
        client = servers.started("valkey").client
        assert client.pttl(place_of(NOBODY, Space.SERVER, b"secret").key) == -1
        assert await store.get(NOBODY, Space.SERVER, [b"secret"]) == {b"secret": b"s"}


@pytest.mark.parametrize("space", list(Space))
async def test_the_server_lets_go_of_what_is_over(servers: Servers, space: Space) -> None:
    async with reached(servers.empty("valkey")) as store:
        await store.put(ALICE, space, {KEY: b"v"}, ttl=1000)
        (name,) = servers.started("valkey").client.keys("*")
        assert 900_000 < servers.started("valkey").client.pttl(name) <= 1_000_000


async def test_of_a_hash_that_is_always_in_use_the_dead_fields_go(servers: Servers) -> None:
    clock = Clock()
    async with reached(servers.empty("valkey"), clock=clock) as store:
        client, name = servers.started("valkey").client, place_of(ALICE, Space.COUNTS, COMMON).key
        keys = [COMMON + b"%d" % number for number in range(1200)]
        await store.put(ALICE, Space.COUNTS, dict.fromkeys(keys[:600], b"old"), ttl=10)
        assert client.hlen(name) == 600
        clock.now += 20
        for start in range(600, 1200, 2):
            await store.put(ALICE, Space.COUNTS, dict.fromkeys(keys[start : start + 2], b"new"), ttl=1e6)
        assert client.hlen(name) < 900  # of 1,200
        assert set(await store.get(ALICE, Space.COUNTS, keys)) == set(keys[600:])


async def test_scripts_that_the_server_has_forgotten_are_told_again(servers: Servers) -> None:
    async with reached(servers.empty("valkey")) as store:
        for _ in range(2):
            await keep(store)
            assert await store.put_new(ALICE, Space.FOLDS, KEY, b"w", ttl=FOREVER) == b"v"
            assert await store.claim(ALICE, b"work", b"me", ttl=10)
            await store.release(ALICE, b"work", b"me")
            servers.started("valkey").client.script_flush()


async def test_clocks_of_replicas_may_differ(servers: Servers) -> None:
    url = servers.empty("valkey")
    slow, fast = Clock(), Clock()
    slow.now, fast.now = 1_000.0, 3e9
    async with reached(url, clock=slow) as one, reached(url, clock=fast) as other:
        await one.put(ALICE, Space.FOLDS, {KEY: b"v"}, ttl=600)
        assert await kept(other) == b"v"
        assert await one.claim(ALICE, b"work", b"one", ttl=600)
        assert not await other.claim(ALICE, b"work", b"other", ttl=600)
        assert await other.put_new(ALICE, Space.FOLDS, KEY, b"w", ttl=600) == b"v"
        fast.now += 700
        assert await kept(other) is None
        assert await kept(one) == b"v"


@pytest.mark.parametrize("kind", ["valkey", "sentinel", "cluster"])
async def test_all_that_is_kept_can_be_listed(servers: Servers, kind: str) -> None:
    async with reached(servers.empty(kind)) as store:
        expected = set()
        for home in HOMES:
            for space in (Space.FOLDS, Space.MESSAGES):
                await store.put(ALICE, space, {home + b"k": home}, ttl=FOREVER)
                expected.add((ALICE, space, home + b"k", home))
        await store.put_new(NOBODY, Space.SERVER, b"secret", b"s", ttl=None)
        expected.add((NOBODY, Space.SERVER, b"secret", b"s"))
        await store.claim(ALICE, b"work", b"me", ttl=10)
        found = [entry async for entry in store.entries()]
        assert len(found) == len(expected)
        assert {(e.tenant, e.space, e.key, e.value) for e in found} == expected


async def test_what_is_large_passes_a_slow_network_and_holds_nobody_up(servers: Servers) -> None:
    servers.empty("valkey")
    async with wire(servers.started("valkey").port) as slow:
        slow.most_at_once = 2**21
        async with reached(slow.url, timeout=1.0) as store:
            value = bytes(2**24)
            large = asyncio.ensure_future(store.put(ALICE, Space.MESSAGES, {KEY: value}, ttl=FOREVER))
            for _ in range(30):
                await keep(store)
                assert await kept(store) == b"v"
                await asyncio.sleep(0.05)  # all together longer than what is small may take
            assert not large.done()
            slow.gate.set()
            await large
            assert servers.started("valkey").client.strlen(place_of(ALICE, Space.MESSAGES, KEY).key) > 2**24


async def test_closing_while_somebody_waits_gives_him_an_outage_and_leaves_no_connection(
    valkey: Server,
) -> None:
    async with reached(valkey.url) as store:
        await keep(store)
        valkey.freeze()
        waiting = [asyncio.ensure_future(kept(store, home)) for home in HOMES]
        await asyncio.sleep(0)
        await store.close()
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, Outage)
        valkey.thaw()
        with pytest.raises(Outage):
            await kept(store)
        await off_loop(partial(until, lambda: not valkey.connections(), "nobody is connected"))


async def test_while_the_server_is_frozen_all_are_answered_and_no_connection_is_left(valkey: Server) -> None:
    tasks, outages, back = Tasks(), list[str](), asyncio.Event()

    async def opened() -> Store:
        return await RedisStore.open(address_in(valkey.url), tasks, timeout=1.0)

    store = GuardedStore(
        opened,
        tasks,
        url=valkey.url,
        on_outage=outages.append,
        on_back=back.set,
        time_limit=1.0,
        pause=0.2,
    )
    await store.put(ALICE, Space.FOLDS, {KEY: b"v"}, ttl=FOREVER)
    assert await store.get(ALICE, Space.FOLDS, [KEY]) == {KEY: b"v"}
    valkey.freeze()
    asked = (store.get(ALICE, Space.FOLDS, [home + b"k"]) for home in HOMES * 10)
    answers = await asyncio.gather(*asked)  # the server is frozen still
    assert answers.count({KEY: b"v"}) == 10  # a fold in use stays at hand
    assert outages == ["unavailable"]
    valkey.thaw()
    while not back.is_set():
        await store.get(ALICE, Space.FOLDS, [KEY])
        await asyncio.sleep(0.01)
    assert len(valkey.connections()) <= 2
    await store.close()
    await tasks.close(timeout=PATIENCE)
    await off_loop(partial(until, lambda: not valkey.connections(), "nobody is connected"))


async def test_a_server_that_is_full_still_deletes(valkey: Server) -> None:
    async with reached(valkey.url) as store:
        await keep(store)
        await store.claim(ALICE, b"work", b"me", ttl=FOREVER)
        valkey.client.config_set("maxmemory", "1mb")
        await store.delete(ALICE, Space.FOLDS, [KEY])
        await store.release(ALICE, b"work", b"me")
        assert not valkey.client.exists(place(HOMES[0]), place_of(ALICE, Space.CLAIMS, b"work").key)


async def test_a_full_server_keeps_nothing_of_what_it_refuses(valkey: Server) -> None:
    async with reached(valkey.url) as store:
        await keep(store)
        valkey.client.config_set("maxmemory", "1mb")
        with pytest.raises(Outage) as caught:
            await store.put(ALICE, Space.FOLDS, {KEY: b"w", HOMES[0] + b"other": b"w"}, ttl=FOREVER)
        assert caught.value.reason == "full"
        assert await kept(store) == b"v"
        assert valkey.client.hlen(place(HOMES[0])) == 1


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
async def test_a_user_who_may_do_what_the_docs_say_is_denied_nothing(servers: Servers, kind: str) -> None:
    url, nodes = servers.empty(kind), nodes_of(servers.started(kind))
    more = "+asking +cluster|slots +command" if kind == "cluster" else "+select"
    limited = as_the_docs_say(url.removesuffix("/0") + ("/3" if kind == "valkey" else ""), nodes, more)
    async with reached(limited) as store:
        values = {home + b"k": home for home in HOMES}
        for space in Space:
            await store.put(ALICE, space, values, ttl=FOREVER)
            assert await store.get(ALICE, space, list(values)) == values
            for ttl in (FOREVER, FOREVER * 2, None):
                assert await store.put_new(ALICE, space, KEY, b"w", ttl=ttl) == HOMES[0]
            await store.delete(ALICE, space, list(values))
            assert await store.get(ALICE, space, list(values)) == {}
        assert await store.claim(ALICE, b"work", b"me", ttl=10)
        await store.release(ALICE, b"work", b"me")
    assert [entry for node in nodes for entry in _denials(node)] == []


async def test_a_user_needs_what_the_docs_say_for_listing_and_for_sentinels(servers: Servers) -> None:
    limited = as_the_docs_say(
        servers.empty("valkey"), [servers.started("valkey")], "+scan +hgetall +hlen +unlink"
    )
    async with reached(limited) as store:
        await keep(store)
        assert [entry.value async for entry in store.entries()] == [b"v"]
        assert await store.clear(list(Space), only_expired=True) == 0
        assert await store.clear(list(Space), only_expired=False) == 1
    url, one = servers.empty("sentinel"), servers.started("sentinel")
    limited = as_the_docs_say(url, [one.master], "")
    one.sentinel.client.execute_command(
        "ACL", "SETUSER", "s", *["reset", "on", ">s", "-@all", "+sentinel|masters"]
    )
    async with reached(limited + "?sentinel_user=s&sentinel_password=s") as store:
        await keep(store)
        assert await kept(store) == b"v"


def _denials(node: Server) -> list[dict[bytes, Any]]:
    entries = node.client.execute_command("ACL", "LOG")
    pairs = [e if isinstance(e, dict) else dict(zip(e[::2], e[1::2], strict=True)) for e in entries]
    return [
        {(k if isinstance(k, bytes) else k.encode()): v for k, v in entry.items()}
        for entry in pairs
        if b"tailfold" in map(_bytes, entry.values())
    ]


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def test_homes_are_as_long_as_homes_are() -> None:
    assert {len(home) for home in HOMES} == {HOME_SIZE}
