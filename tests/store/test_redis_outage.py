"""What real servers say when they are unwell, and what we make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from redis.exceptions import BusyLoadingError, ConnectionError, ResponseError

from proxy.ports import Space
from proxy.store.outage import Outage
from proxy.store.redis_outage import outage_from
from tests.store.reaching import ALICE, HOMES, keep, kept, reached
from tests.store.servers import Server, cluster, off_loop, server, until

SECRET = "hunter2"


@pytest.fixture(scope="module")
def lame() -> Iterator[Server]:
    """Each test puts it right again."""
    with server() as one:
        yield one


async def outage(url: str, *, write: bool = True) -> Outage:
    with pytest.raises(Outage) as caught:
        async with reached(url) as store:
            await (keep(store, value=SECRET.encode()) if write else kept(store))
    assert SECRET not in str(caught.value)
    assert str(HOMES[0]) not in str(caught.value)
    return caught.value


def settled(lame: Server, **values: object) -> None:
    for name, value in values.items():
        lame.client.config_set(name.replace("_", "-"), value)


async def test_a_wrong_password_or_a_missing_one(lame: Server) -> None:
    settled(lame, requirepass=SECRET)
    lame.client.execute_command("AUTH", SECRET)
    try:
        for user in ("", ":wrong@", "nobody:wrong@"):
            problem = await outage(f"redis://{user}127.0.0.1:{lame.port}")
            assert (problem.reason, "password" in str(problem)) == ("refused", True)
    finally:
        settled(lame, requirepass="")


@pytest.mark.parametrize("command", ["evalsha", "type", "hset", "time"])
async def test_a_user_who_may_not_do_all_that_is_needed(lame: Server, command: str) -> None:
    lame.client.acl_setuser(
        "some", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], commands=["+@all", f"-{command}"]
    )
    problem = await outage(f"redis://some:{SECRET}@127.0.0.1:{lame.port}")
    assert (problem.reason, command.upper() in str(problem)) == ("refused", True)
    lame.client.acl_deluser("some")


async def test_a_user_who_may_not_reach_our_keys(lame: Server) -> None:
    lame.client.acl_setuser(
        "some", enabled=True, passwords=[f"+{SECRET}"], keys=["others:*"], commands=["+@all"]
    )
    problem = await outage(f"redis://some:{SECRET}@127.0.0.1:{lame.port}", write=False)
    assert (problem.reason, "keys" in str(problem)) == ("refused", True)
    lame.client.acl_deluser("some")


async def test_a_command_that_was_taken_away() -> None:
    with server("--rename-command", "EVALSHA", "") as one:
        problem = await outage(one.url)
    assert (problem.reason, str(problem)) == ("refused", "the server does not let us use EVALSHA")


async def test_no_memory_left(lame: Server) -> None:
    settled(lame, maxmemory="1mb", maxmemory_policy="noeviction")
    assert (await outage(lame.url)).reason == "full"
    settled(lame, maxmemory="0")


async def test_a_replica(lame: Server) -> None:
    lame.client.replicaof("127.0.0.1", 1)
    try:
        assert (await outage(lame.url)).reason == "readonly"
        settled(lame, replica_serve_stale_data="no")
        problem = await outage(lame.url, write=False)
        assert (problem.reason, str(problem)) == ("unavailable", "the server answers MASTERDOWN")
    finally:
        settled(lame, replica_serve_stale_data="yes")
        lame.client.replicaof("NO", "ONE")


async def test_too_few_replicas(lame: Server) -> None:
    settled(lame, min_replicas_to_write=1)
    assert (await outage(lame.url)).reason == "readonly"
    settled(lame, min_replicas_to_write=0)


async def test_a_disk_that_cannot_be_written() -> None:
    with server("--enable-protected-configs", "yes") as one:
        settled(one, save="3600 1")
        one.client.set("k", "v")
        # A folder where the file should be: for the superuser too.
        (one.folder / "there").mkdir()
        (one.folder / "there" / "file").touch()
        settled(one, dbfilename="there")
        one.client.bgsave()
        failed = partial(
            until, lambda: one.client.info("persistence")["rdb_last_bgsave_status"] == "err", "it fails"
        )
        await off_loop(failed)
        problem = await outage(one.url)
    assert (problem.reason, "save" in str(problem)) == ("readonly", True)


async def test_a_server_that_is_still_loading() -> None:
    with server() as one:
        for number in range(2000):
            one.client.set(str(number), "x" * 100)
        one.client.save()
        one.kill()
        one.launch("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
        await off_loop(partial(until, partial(_is_loading, one), "it loads"))
        assert (await outage(one.url)).reason == "loading"


def _is_loading(one: Server) -> bool:
    try:
        one.client.ping()
    except BusyLoadingError:
        return True
    return False


async def test_nobody_there(lame: Server) -> None:
    assert (await outage("redis://127.0.0.1:1")).reason == "unavailable"
    assert (await outage("redis://no-such-host.invalid")).reason == "unavailable"
    assert (await outage("redis+cluster://127.0.0.1:1")).reason == "unavailable"
    problem = await outage("redis+sentinel://127.0.0.1:1/mymaster")
    assert (problem.reason, str(problem)) == ("unavailable", "no Sentinel names a master")


async def test_a_server_that_is_no_cluster_and_no_sentinel(lame: Server) -> None:
    assert (await outage(f"redis+cluster://127.0.0.1:{lame.port}")).reason == "unavailable"
    problem = await outage(f"redis+sentinel://127.0.0.1:{lame.port}/mymaster")
    assert (problem.reason, str(problem)) == ("refused", "what answers is no Sentinel")


async def test_somebody_else_altogether() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(greet, "127.0.0.1", 0)
    assert (await outage(f"redis://127.0.0.1:{other.sockets[0].getsockname()[1]}")).reason == "unavailable"
    other.close()
    await other.wait_closed()


async def test_a_cluster_with_a_hole() -> None:
    with cluster() as one:
        async with reached(one.url) as store:
            one.nodes[0].client.execute_command("CLUSTER DELSLOTS", 0)
            await off_loop(partial(until, partial(_says, one.nodes[0], "fail"), "it knows"))
            with pytest.raises(Outage) as caught:
                await store.put(ALICE, Space.FOLDS, dict.fromkeys(HOMES, b"v"), ttl=60)
    assert (caught.value.reason, str(caught.value)) == ("unavailable", "the server answers CLUSTERDOWN")


def _says(node: Server, state: str) -> bool:
    return f"'cluster_state': '{state}'" in str(node.client.execute_command("CLUSTER INFO"))


@pytest.mark.parametrize(
    "error",
    [
        ResponseError(f"unknown command 'GET', with args beginning with: '{SECRET}'"),
        ResponseError(f"unknown command '{SECRET}'"),
        ResponseError(f"{SECRET} is no good"),
        ResponseError(f"ODD {SECRET}"),
        ConnectionError(f"Error 111 connecting to {SECRET}"),
        OSError(SECRET),
    ],
)
def test_nothing_that_a_server_says_is_repeated_but_its_code_and_our_own_commands(error: Exception) -> None:
    assert SECRET not in str(outage_from(error))
    assert SECRET.upper() not in str(outage_from(error))
