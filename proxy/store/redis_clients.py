"""Clients for a shared store, wherever it is."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

from proxy.settings.redis_address import Address


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
    ((host, port),) = address.hosts
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
