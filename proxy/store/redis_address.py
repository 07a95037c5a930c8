"""From a store's URL to a client: one server, one that Sentinels choose, or a cluster.

    redis://user:password@host:6379/0          rediss://… the same over TLS
    redis+sentinel://host:26379,host:26379/mymaster/0
    redis+cluster://host:6379,host:6379

Behind a question mark: `ca` (a PEM file) and `verify=false`; for Sentinels and clusters `tls=true`; for
Sentinels that have a password of their own `sentinel_user` and `sentinel_password`.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

SCHEMES = ("redis", "rediss", "redis+sentinel", "redis+cluster")

_PORT = 6379
_SENTINELS_PORT = 26379
_KNOWN = frozenset({"ca", "verify", "tls", "sentinel_user", "sentinel_password"})


class NotAnAddress(ValueError):
    """The message is fit to be shown: it repeats no part of the URL but names of parameters."""


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    hosts: Sequence[tuple[str, int]]
    service: str = ""  # as Sentinels call the master
    database: int = 0
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_user: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    verify: bool = True

    @property
    def is_cluster(self) -> bool:
        return self.scheme == "redis+cluster"

    @property
    def is_sentinel(self) -> bool:
        return self.scheme == "redis+sentinel"


def address_in(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    rest, _, path = rest.partition("/") if "@" not in rest else _behind_the_hosts(rest)
    userinfo, at, hosts = rest.rpartition("@")
    user, colon, password = userinfo.partition(":")
    said = _parameters(query)
    service, database = _path(scheme, path)
    return Address(
        scheme,
        _hosts(hosts, _SENTINELS_PORT if scheme == "redis+sentinel" else _PORT),
        service,
        database,
        unquote(user) if at and user else None,
        unquote(password) if at and colon else None,
        said.get("sentinel_user"),
        said.get("sentinel_password"),
        scheme == "rediss" or _yes("tls", said.get("tls", "false")),
        said.get("ca"),
        _yes("verify", said.get("verify", "true")),
    )


def _behind_the_hosts(rest: str) -> tuple[str, str, str]:
    """A password may have a slash in it."""
    userinfo, _, hosts = rest.rpartition("@")
    hosts, slash, path = hosts.partition("/")
    return f"{userinfo}@{hosts}", slash, path


def _parameters(query: str) -> dict[str, str]:
    try:
        said = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=16)
    except ValueError:
        raise NotAnAddress("what stands behind the ? should be name=value, joined by &") from None
    if unknown := sorted(said.keys() - _KNOWN):
        known = ", ".join(sorted(_KNOWN))
        raise NotAnAddress(f"unknown behind the ?: {', '.join(unknown)[:100]}; known are {known}")
    return {name: values[-1] for name, values in said.items()}


def _yes(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise NotAnAddress(f"{name} should be true or false")
    return value.lower() in ("true", "1", "yes")


def _path(scheme: str, path: str) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    service = ""
    if scheme == "redis+sentinel":
        if not parts:
            raise NotAnAddress("should name the master behind the hosts: redis+sentinel://host/mymaster")
        service, *parts = parts
    if scheme == "redis+cluster" and parts not in ([], ["0"]):
        raise NotAnAddress("a cluster has database 0 only")
    if len(parts) > 1 or any(not part.isascii() or not part.isdigit() for part in parts):
        raise NotAnAddress("should end with the number of a database, such as /0")
    return service, int(parts[0]) if parts else 0


def _hosts(hosts: str, port: int) -> list[tuple[str, int]]:
    found = [_host(each.strip(), port) for each in hosts.split(",") if each.strip()]
    if not found:
        raise NotAnAddress("should name a host")
    return found


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        said = rest.removeprefix(":") if rest else ""
    else:
        host, _, said = text.partition(":")
    if not host or (said and not (said.isascii() and said.isdigit() and 0 < int(said) < 65536)):
        raise NotAnAddress("should name hosts as host or host:port")
    return host, int(said) if said else port


class Clients(NamedTuple):
    """Who is asked, and who else has connections that must be closed."""

    asked: Any
    others: Sequence[Any] = ()


def clients_for(address: Address, *, timeout: float, connections: int) -> Clients:
    """A client that never tries again by itself and never waits longer than `timeout`: whoever asks has
    other ways to go. Nothing is sent yet.
    """
    from redis.asyncio import Redis, RedisCluster, Sentinel  # costs start-up time that others need not pay
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    common: dict[str, Any] = {
        "username": address.user,
        "password": address.password,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "socket_keepalive": True,
        "client_name": "tailfold",
        **_tls(address),
    }
    if address.is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return Clients(RedisCluster(startup_nodes=nodes, max_connections=connections, **common))
    common |= {"db": address.database, "max_connections": connections}
    if address.is_sentinel:
        theirs = {"username": address.sentinel_user, "password": address.sentinel_password}
        others = {"socket_timeout": timeout, "socket_connect_timeout": timeout, **_tls(address)}
        sentinel = Sentinel(list(address.hosts), sentinel_kwargs=theirs | others)  # type: ignore[no-untyped-call]
        return Clients(sentinel.master_for(address.service, **common), sentinel.sentinels)
    ((host, port), *others_named) = address.hosts
    if others_named:
        raise NotAnAddress("should name one host; several are for redis+sentinel:// and redis+cluster://")
    return Clients(Redis(host=host, port=port, **common))


def _tls(address: Address) -> dict[str, Any]:
    if not address.tls:
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": address.ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if address.verify else ssl.CERT_NONE,
        "ssl_check_hostname": address.verify,
    }
