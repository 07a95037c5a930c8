"""The servers of a shared store: what they say of themselves."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol

from redis.exceptions import ResponseError

from proxy.cli.doctor import round_trip
from proxy.cli.doctor.finding import Finding
from proxy.cli.doctor.redis_facts import Server, findings_of
from proxy.ports import StoreUnavailable
from proxy.settings import Settings, masked
from proxy.settings.redis_address import Address, address_in
from proxy.store.redis_asking import TROUBLE
from proxy.store.redis_clients import clients_for
from proxy.store.redis_outage import outage_from
from proxy.tasks import Tasks

_CONNECTIONS = 2


class _Ask(Protocol):
    def __call__(self, *command: str) -> Awaitable[Any]: ...


async def check(settings: Settings, tasks: Tasks) -> list[Finding]:
    address = address_in(settings.store_url)
    within: dict[str, float] = {"timeout": round_trip.PATIENCE, "patience": round_trip.PATIENCE}
    try:
        clients = clients_for(address, **within, connections=_CONNECTIONS)
    except StoreUnavailable as problem:
        return [round_trip.unavailable(problem)]
    try:
        servers = await _servers(clients.asked, address)
    except TROUBLE as trouble:
        return [round_trip.unavailable(outage_from(trouble), masked(settings.store_url))]
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
