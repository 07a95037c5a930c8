"""Clients for a shared store, wherever it is."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.settings.redis_address import Address
from proxy.store.outage import Outage
from proxy.store.redis_asking import TROUBLE, Asking, ManyServers, OneServer


class Clients(NamedTuple):
    """Who is asked, and who else has connections that must be closed."""

    asked: Any
    others: Sequence[Any] = ()

    @property
    def asking(self) -> Asking:
        return ManyServers(self.asked) if isinstance(self.asked, RedisCluster) else OneServer(self.asked)

    async def close(self) -> None:
        for client in (self.asked, *self.others):
            try:
                await client.aclose()
            except TROUBLE:
                pass  # it is gone already


def clients_for(address: Address, *, timeout: float, patience: float, connections: int) -> Clients:
    """A client that never tries again by itself: whoever asks has other ways to go. It connects within
    `timeout` and waits no longer than `patience` for an answer. Nothing is sent yet.
    """
    quick: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        # Of the newer protocol we need nothing, and with it the library no longer sees before it asks that a
        # connection was cut.
        "protocol": 2,
        "driver_info": None,  # two commands less for each connection
        **_tls(address),
    }
    common: dict[str, Any] = {
        **quick,
        "username": address.user,
        "password": address.password,
        "socket_timeout": patience,
        "socket_keepalive": True,
        "client_name": "tailfold",
    }
    if address.is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return Clients(RedisCluster(startup_nodes=nodes, max_connections=connections, **common))
    common |= {"db": address.database, "max_connections": connections}
    if address.is_sentinel:
        theirs = {"username": address.sentinel_user, "password": address.sentinel_password}
        sentinel = Sentinel(list(address.hosts), sentinel_kwargs=theirs | quick)  # type: ignore[no-untyped-call]
        return Clients(sentinel.master_for(address.service, **common), sentinel.sentinels)
    ((host, port),) = address.hosts
    return Clients(Redis(host=host, port=port, **common))


def _tls(address: Address) -> dict[str, Any]:
    if not address.tls:
        return {}
    if address.ca is not None:
        _read(address.ca)
    return {
        "ssl": True,
        "ssl_ca_certs": address.ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if address.verify else ssl.CERT_NONE,
        "ssl_check_hostname": address.verify,
    }


def _read(ca: str) -> None:
    """The library would read it for each connection, and not say what is wrong with it."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except OSError:
        hint = "is the file there, readable, and a PEM file?"
        raise Outage(
            "refused", "the file that ca= names has no certificates that can be read", hint
        ) from None
