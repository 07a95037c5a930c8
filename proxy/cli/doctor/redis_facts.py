"""What the facts that a Redis or Valkey server tells of itself mean for Tailfold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.cli.doctor import clocks
from proxy.cli.doctor.finding import Finding, fails, gravest, passes, warns
from proxy.cli.doctor.sizes import written

_OLDEST = 7  # of Redis; every Valkey will do
_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Server:
    name: str = ""  # empty where there is only one
    ahead: float = 0.0  # seconds of its clock before ours
    info: Mapping[str, Any] = field(default_factory=dict)  # empty where it may not be asked
    save: str | None = None  # when snapshots are made; None where it may not be asked
    cluster_state: str | None = None


def findings_of(servers: Sequence[Server], *, as_cluster: bool) -> list[Finding]:
    """One for each question: of the server that fares worst."""
    questions: list[Callable[[Server], Finding]] = [_clock]
    if all(server.info for server in servers):
        questions = [version, memory, persistence, role, *questions]
    else:
        questions = [_silent, *questions]
    if as_cluster or any(server.info.get("cluster_enabled") for server in servers):
        questions.append(cluster if as_cluster else _node_alone)
    return [gravest(_named(server, question(server)) for server in servers) for question in questions]


def _named(server: Server, finding: Finding) -> Finding:
    return replace(finding, found=f"{server.name}: {finding.found}") if server.name else finding


def _silent(_server: Server) -> Finding:
    found = "INFO is not allowed, so version, memory, persistence and role cannot be told"
    hint = "allow +info and +config|get, or see for yourself: a master with maxmemory-policy noeviction"
    return warns("store server", found, hint)


def version(server: Server) -> Finding:
    name = "store server"
    if valkey := server.info.get("valkey_version"):
        return passes(name, f"Valkey {valkey}")
    said = str(server.info.get("redis_version", ""))
    major = said.partition(".")[0]
    if major.isdecimal() and int(major) >= _OLDEST:
        return passes(name, f"Redis {said}")
    # The scripts ask for nothing newer, but nobody has tried them there.
    hint = f"Tailfold is tested with Valkey, and made for Redis {_OLDEST} and later"
    return warns(name, f"Redis {said}" if said else "does not say its version", hint)


def memory(server: Server) -> Finding:
    name, info = "store memory", server.info
    most, used = info.get("maxmemory"), info.get("used_memory", 0)
    policy = info.get("maxmemory_policy", "unknown")
    if most is None:
        return warns(name, "how much it may take cannot be told", "see that its policy is noeviction")
    if most == 0:
        return passes(name, f"{written(used)} used, with no maxmemory: it may take all that the machine has")
    found = f"{written(used)} of {written(most)} used, {policy}"
    if policy != "noeviction":
        hint = "set maxmemory-policy to noeviction: with this one, folds in use may be evicted and made anew"
        return warns(name, found, hint)
    if used >= _NEARLY_FULL * most:
        return warns(name, found, "raise maxmemory: when it is full, nothing more is kept")
    return passes(name, found)


def persistence(server: Server) -> Finding:
    name, info = "store persistence", server.info
    if "err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")):
        return warns(name, "the server could not write to its disk", "look at its log: is the disk full?")
    if info.get("aof_enabled"):
        return passes(name, "append-only file")
    if server.save:
        return passes(name, f"snapshots ({server.save})")
    if server.save is None:
        hint = "if all may be lost when it restarts, summaries are made anew and paid for again"
        return warns(name, "no append-only file; whether it makes snapshots cannot be told", hint)
    return warns(name, "none: all is lost when the server restarts", "appendonly yes, or snapshots (save)")


def role(server: Server) -> Finding:
    name = "store role"
    if server.info.get("role") == "slave":
        hint = "name the master, or the Sentinels that know it: redis+sentinel://"
        return fails(name, "a replica, which takes no writes or loses them", hint)
    replicas = server.info.get("connected_slaves", 0)
    return passes(name, f"a master, {replicas} replica{'' if replicas == 1 else 's'}")


def cluster(server: Server) -> Finding:
    name = "store cluster"
    if server.cluster_state is None:
        return warns(name, "its state cannot be told", "allow +cluster|info, or see for yourself")
    if server.cluster_state != "ok":
        return fails(name, f"its state is {server.cluster_state}", "mend it: some slots have no server")
    return passes(name, "whole")


def _node_alone(_server: Server) -> Finding:
    found = "it is a node of a cluster, and has only a part of what is kept"
    return fails("store cluster", found, "name it so: redis+cluster://host:port,host:port")


def _clock(server: Server) -> Finding:
    return clocks.compared("store clock", "the store", server.ahead)
