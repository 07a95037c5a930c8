"""The servers of a shared store: what they say of themselves."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import AuthenticationError, NoPermissionError, RedisClusterException, ResponseError
from redis.exceptions import TimeoutError as NoAnswer

from proxy.cli.doctor import round_trip
from proxy.cli.doctor.finding import Finding, fails
from proxy.cli.doctor.redis_facts import Server, findings_of
from proxy.ports import StoreUnavailable
from proxy.settings import Settings, masked
from proxy.settings.redis_address import Address, address_in
from proxy.store.redis_asking import TROUBLE
from proxy.store.redis_clients import clients_for
from proxy.tasks import Tasks

# What a user of the server needs, the last two, and the last one of a cluster's, for this command alone.
RIGHTS = "~tailfold:* +@connection +@read +@write +@scripting +time +info +config|get"
IN_A_CLUSTER = "+cluster|slots +cluster|info"

_CONNECTIONS = 2


class _Ask(Protocol):
    def __call__(self, *command: str) -> Awaitable[Any]: ...


async def check(settings: Settings, tasks: Tasks) -> list[Finding]:
    address = address_in(settings.store_url)
    within: dict[str, float] = {"timeout": round_trip.PATIENCE, "patience": round_trip.PATIENCE}
    try:
        clients = clients_for(address, **within, connections=_CONNECTIONS)
    except StoreUnavailable as problem:
        return [fails(round_trip.NAME, str(problem), "is the file there, readable, and a PEM file?")]
    try:
        servers = await _servers(clients.asked, address)
    except TROUBLE as trouble:
        return [unreachable(masked(settings.store_url), trouble)]
    finally:
        await clients.close()
    return [await round_trip.check(settings, tasks), *findings_of(servers, as_cluster=address.is_cluster)]


async def _servers(client: Any, address: Address) -> list[Server]:
    if not address.is_cluster:
        return [await _server("", client.execute_command)]
    await client.initialize()
    return [
        await _server(node.name, partial(client.execute_command, target_nodes=node))
        for node in client.get_primaries()
    ]


async def _server(name: str, ask: _Ask) -> Server:
    began = time.time()
    seconds, micros = await ask("TIME")
    ahead = int(seconds) + int(micros) / 1e6 - (began + time.time()) / 2
    info = await _if_allowed(ask("INFO"))
    save = await _if_allowed(ask("CONFIG GET", "save"))
    state = await _if_allowed(ask("CLUSTER INFO")) if name else None
    return Server(name, ahead, info or {}, (save or {}).get("save"), (state or {}).get("cluster_state"))


async def _if_allowed(answer: Awaitable[Any]) -> Any:
    """None where it is not: a managed server knows no CONFIG, and an access list may forbid the rest."""
    try:
        return await answer
    except ResponseError:
        return None


def unreachable(where: str, trouble: Exception) -> Finding:
    """Of the trouble only its kind is told: its text may quote a command."""
    if isinstance(trouble, AuthenticationError):
        hint = "write it as redis://USER:PASSWORD@host, with what is not a letter or a digit as %XX"
        return fails(round_trip.NAME, f"{where} refuses the user or the password", hint)
    if isinstance(trouble, NoAnswer | TimeoutError):
        found = f"{where} does not answer within {round_trip.PATIENCE:g} s"
        return fails(round_trip.NAME, found, "is it frozen, or does a firewall drop what is sent to it?")
    if isinstance(trouble, RedisClusterException):
        hint = f"is it one, and whole? One server is redis://host:port. Its user needs {IN_A_CLUSTER}"
        return fails(round_trip.NAME, f"{where} does not answer as a cluster", hint)
    if isinstance(trouble, NoPermissionError):
        return fails(round_trip.NAME, f"{where} refuses a command to this user", f"ACL SETUSER … {RIGHTS}")
    if isinstance(trouble, MasterNotFoundError):
        hint = "is the master's name behind the hosts the one that the Sentinels know, and do they run?"
        return fails(round_trip.NAME, f"{where}: no Sentinel names a master", hint)
    found = f"{where} cannot be reached ({type(trouble).__name__})"
    return fails(round_trip.NAME, found, "does it run, and is the address in store right? TLS is rediss://")
