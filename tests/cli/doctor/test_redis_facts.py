"""What servers say of themselves, read without any server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.redis_facts import Server, cluster, findings_of, memory, persistence, role, version

PASS, WARN, FAIL = Verdict
MASTER = {"redis_version": "7.2.4", "role": "master", "maxmemory": 0, "aof_enabled": 1}


def named(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.mark.parametrize(
    ("judge", "info", "verdict"),
    [
        (version, {"redis_version": "7.2.4", "valkey_version": "9.1.2"}, PASS),
        (version, {"redis_version": "7.0.0"}, PASS),
        (version, {"redis_version": "10.1"}, PASS),
        (version, {"redis_version": "6.2.14"}, WARN),
        (version, {"redis_version": "unstable"}, WARN),
        (version, {}, WARN),
        (memory, {}, WARN),
        (memory, {"maxmemory": 0, "maxmemory_policy": "allkeys-lru"}, PASS),
        (memory, {"maxmemory": 100, "used_memory": 89, "maxmemory_policy": "noeviction"}, PASS),
        (memory, {"maxmemory": 100, "used_memory": 90, "maxmemory_policy": "noeviction"}, WARN),
        (memory, {"maxmemory": 100, "used_memory": 1, "maxmemory_policy": "volatile-ttl"}, WARN),
        (persistence, {"aof_enabled": 1}, PASS),
        (persistence, {"aof_enabled": 1, "aof_last_write_status": "err"}, WARN),
        (role, {"role": "master", "connected_slaves": 2}, PASS),
        (role, {"role": "slave"}, FAIL),
    ],
)
def test_a_fact_is_judged(judge: Callable[[Server], Finding], info: dict[str, Any], verdict: Verdict) -> None:
    finding = judge(Server(info=info))
    assert finding.verdict is verdict
    assert (finding.hint is None) == (verdict is PASS)


@pytest.mark.parametrize(
    ("save", "verdict", "said"),
    [("3600 1", PASS, "snapshots"), ("", WARN, "all is lost"), (None, WARN, "cannot be told")],
)
def test_without_a_log_snapshots_count(save: str | None, verdict: Verdict, said: str) -> None:
    finding = persistence(Server(info={"aof_enabled": 0}, save=save))
    assert finding.verdict is verdict
    assert said in finding.found


@pytest.mark.parametrize(("state", "verdict"), [("ok", PASS), ("fail", FAIL), (None, WARN)])
def test_a_cluster_is_judged_by_its_state(state: str | None, verdict: Verdict) -> None:
    assert cluster(Server(cluster_state=state)).verdict is verdict


def test_of_several_servers_the_worst_is_told_by_its_name() -> None:
    good = Server("a:1", info=MASTER, cluster_state="ok")
    bad = Server("b:2", info={**MASTER, "maxmemory": 100, "maxmemory_policy": "allkeys-lru"})
    found = named(findings_of([good, bad], as_cluster=True))
    assert found["store memory"].found.startswith("b:2: ")
    assert found["store server"].found.startswith("a:1: ")
    assert found["store cluster"].verdict is WARN


def test_a_server_that_may_not_be_asked_is_one_warning() -> None:
    found = named(findings_of([Server()], as_cluster=False))
    assert {name: finding.verdict for name, finding in found.items()} == {
        "store server": WARN,
        "store clock": PASS,
    }


def test_a_node_that_is_named_as_a_server_of_its_own_fails() -> None:
    found = named(findings_of([Server(info={**MASTER, "cluster_enabled": 1})], as_cluster=False))
    assert found["store cluster"].verdict is FAIL
    assert "redis+cluster://" in str(found["store cluster"].hint)


def test_a_clock_far_off_is_a_warning() -> None:
    assert named(findings_of([Server(ahead=-60)], as_cluster=False))["store clock"].verdict is WARN
