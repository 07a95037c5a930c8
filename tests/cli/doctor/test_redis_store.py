"""The doctor and real servers, well and ill."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.store import check
from proxy.settings import Settings
from proxy.store import open_primary
from proxy.store.outage import Outage
from proxy.store.redis_rights import IN_A_CLUSTER, RIGHTS, TO_EXAMINE, TO_EXAMINE_A_CLUSTER
from proxy.tasks import Tasks
from tests.shared.replicas import wire
from tests.store.servers import Server, cluster, free_port, off_loop, server, until, watched

PASS, WARN, FAIL = Verdict
SECRET = "s" * 32


async def findings(url: str, **settings: Any) -> dict[str, Finding]:
    tasks = Tasks()
    made = Settings.model_validate({"store": url, "secret": SECRET, **settings})
    found = await check(made, tasks)
    await tasks.close(timeout=0)
    return {finding.name: finding for finding in found}


def verdicts(found: dict[str, Finding]) -> dict[str, Verdict]:
    return {name: finding.verdict for name, finding in found.items()}


@pytest.fixture(scope="module")
def valkey() -> Iterator[Server]:
    with server() as one:
        yield one


def as_user(one: Server, name: str, rights: str) -> str:
    """The server's address for a new user."""
    one.client.execute_command("ACL", "SETUSER", name, "on", ">pw", *rights.split())
    return one.url.replace("//", f"//{name}:pw@")


async def test_a_server_as_it_should_be_is_left_empty() -> None:
    with server("--appendonly", "yes", "--maxmemory", "100mb") as one:
        found = await findings(one.url)
        assert one.client.dbsize() == 0
    assert verdicts(found) == dict.fromkeys(
        ["store", "store server", "store memory", "store persistence", "store role", "store clock"], PASS
    )
    assert found["store server"].found.startswith("Valkey 9")
    assert "noeviction" in found["store memory"].found


async def test_a_policy_that_evicts_is_a_warning() -> None:
    with server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as one:
        found = await findings(one.url)
    assert found["store memory"].verdict is WARN
    assert "allkeys-lru" in found["store memory"].found
    assert "noeviction" in str(found["store memory"].hint)
    assert found["store"].verdict is PASS


async def test_a_server_that_is_full_fails(valkey: Server) -> None:
    with server("--maxmemory", "1") as full:
        found = await findings(full.url)
    assert found["store"].verdict is FAIL
    assert found["store memory"].verdict is WARN


async def test_no_persistence_is_a_warning_and_no_maxmemory_is_none(valkey: Server) -> None:
    found = await findings(valkey.url)
    assert found["store persistence"].verdict is WARN
    assert found["store memory"].verdict is PASS
    assert "no maxmemory" in found["store memory"].found


async def test_a_replica_fails(valkey: Server) -> None:
    with server("--replicaof", f"127.0.0.1 {valkey.port}") as replica:
        until(lambda: replica.client.info("replication")["master_link_status"] == "up", "it follows")
        found = await findings(replica.url)
    assert found["store"].verdict is FAIL
    assert found["store role"].verdict is FAIL


async def test_a_password_is_tried_and_never_shown() -> None:
    with server() as one:
        one.client.config_set("requirepass", "r1ght")
        right = await findings(one.url.replace("//", "//:r1ght@"))
        wrong = await findings(one.url.replace("//", "//:wr0ng@"))
        none = await findings(one.url)
    assert right["store"].verdict is PASS
    assert verdicts(wrong) == verdicts(none) == {"store": FAIL}
    assert "password" in wrong["store"].found
    assert "r1ght" not in str(right)
    assert "wr0ng" not in str(wrong)


async def test_a_server_that_is_frozen_fails_in_time() -> None:
    with server() as one:
        one.freeze()
        found = await findings(one.url)
        one.thaw()
    assert verdicts(found) == {"store": FAIL}
    assert "does not answer in time" in found["store"].found


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel"])
async def test_a_server_that_is_not_there_fails(scheme: str) -> None:
    path = "/mymaster" if scheme == "redis+sentinel" else ""
    found = await findings(f"{scheme}://127.0.0.1:{free_port()}{path}")
    assert verdicts(found) == {"store": FAIL}
    assert found["store"].hint


async def test_a_server_that_speaks_no_tls_fails_as_one_that_should(valkey: Server) -> None:
    found = await findings(valkey.url.replace("redis:", "rediss:"))
    assert verdicts(found) == {"store": FAIL}


async def test_what_a_managed_server_forbids_is_a_warning_that_it_cannot_be_told(valkey: Server) -> None:
    found = await findings(as_user(valkey, "managed", "+@all -info -config ~*"))
    assert verdicts(found) == {"store": PASS, "store server": WARN, "store clock": PASS}
    assert "cannot be told" in found["store server"].found


async def test_a_server_without_config_is_asked_for_the_rest(valkey: Server) -> None:
    found = await findings(as_user(valkey, "half", "+@all -config ~*"))
    assert found["store server"].verdict is PASS
    assert "cannot be told" in found["store persistence"].found


async def test_the_rights_that_are_documented_are_enough_for_everything(valkey: Server) -> None:
    found = await findings(as_user(valkey, "least", f"{RIGHTS} {TO_EXAMINE}"))
    assert found["store"].verdict is PASS
    assert found["store server"].verdict is PASS
    assert "cannot be told" not in found["store persistence"].found


async def test_a_user_without_rights_fails_and_is_told_which_it_needs(valkey: Server) -> None:
    found = await findings(as_user(valkey, "none", "+@connection ~*"))
    assert verdicts(found) == {"store": FAIL}
    assert RIGHTS in str(found["store"].hint)


@pytest.mark.parametrize(
    ("change", "found", "hint"),
    [
        (("/0", "/99"), "no database of this number", "0 to 15"),
        (("redis:", "rediss:"), "does not answer in time", "rediss://"),
        (("redis:", "redis+cluster:"), "does not answer as a cluster", "redis://host:port"),
    ],
)
async def test_trouble_is_told_as_serve_tells_it_with_what_to_do(
    valkey: Server, change: tuple[str, str], found: str, hint: str
) -> None:
    url = valkey.url.replace(*change)
    told = await findings(url)
    assert verdicts(told) == {"store": FAIL}
    assert found in told["store"].found
    assert hint in str(told["store"].hint)
    tasks = Tasks()
    with pytest.raises(Outage) as caught:
        await open_primary(url, tasks, time_limit=2.0)
    await tasks.close(timeout=0)
    assert told["store"].found == f"{url}: {caught.value}"


async def test_a_server_that_is_no_sentinel_is_told_from_sentinels_without_a_master(valkey: Server) -> None:
    told = await findings(f"redis+sentinel://127.0.0.1:{valkey.port}/mymaster")
    assert verdicts(told) == {"store": FAIL}
    assert "what answers is no Sentinel" in told["store"].found
    assert "redis://" in str(told["store"].hint)


async def test_a_certificate_that_is_not_trusted_is_told(valkey: Server, tmp_path: Path) -> None:
    authority = trustme.CA()
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with wire(valkey.port, tls=context) as end:
        told = await findings(f"{end.url}?ca={tmp_path}/other.pem")
    assert verdicts(told) == {"store": FAIL}
    assert "certificate is not to be trusted" in told["store"].found
    assert "ca=" in str(told["store"].hint)


async def test_one_server_is_no_cluster(valkey: Server) -> None:
    found = await findings(valkey.url.replace("redis:", "redis+cluster:"))
    assert verdicts(found) == {"store": FAIL}
    assert "cluster" in found["store"].found


async def test_a_cluster_is_asked_as_a_whole_and_one_of_its_nodes_is_not_enough() -> None:
    with cluster() as whole:
        found = await findings(whole.url)
        node = await findings(whole.nodes[0].url)
        assert [each.client.dbsize() for each in whole.nodes] == [0] * 6
    assert found["store"].verdict is found["store cluster"].verdict is PASS
    assert found["store persistence"].found.startswith("127.0.0.1:")
    assert node["store cluster"].verdict is FAIL


async def test_the_rights_for_a_cluster_are_enough_there() -> None:
    with cluster() as whole:
        rights = f"{RIGHTS} {IN_A_CLUSTER} {TO_EXAMINE} {TO_EXAMINE_A_CLUSTER}"
        urls = [as_user(node, "least", rights) for node in whole.nodes]
        hosts = ",".join(url.rpartition("@")[2].removesuffix("/0") for url in urls)
        found = await findings(f"redis+cluster://least:pw@{hosts}")
    assert found["store"].verdict is found["store cluster"].verdict is PASS


async def test_sentinels_are_asked_for_the_master() -> None:
    with watched() as stack:
        found = await findings(stack.url)
        unknown = await findings(stack.url.replace("mymaster", "another"))
    assert found["store"].verdict is found["store role"].verdict is PASS
    assert verdicts(unknown) == {"store": FAIL}
    assert "master" in unknown["store"].found


async def test_values_are_sealed_where_they_would_be(valkey: Server) -> None:
    key = "k1:" + "A" * 43 + "="
    found = await findings(valkey.url, encryption={"keys": key})
    assert found["store"].verdict is PASS
    assert await off_loop(valkey.client.dbsize) == 0
