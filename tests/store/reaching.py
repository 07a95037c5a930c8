"""A shared store on a real server, opened for one test."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy.ports import HOME_SIZE, Space
from proxy.settings.redis_address import address_in
from proxy.store.redis import RedisStore
from proxy.store.redis_asking import Asking
from proxy.store.redis_clients import clients_for
from proxy.store.redis_keys import place_of
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE
from tests.store.servers import Cluster, Server, Watched

ALICE = b"alice" * 6
DOCS = Path(__file__).parent.parent.parent / "docs/storage.md"
HOMES = [bytes([number]) * HOME_SIZE for number in range(48)]  # on every server of a cluster some


@asynccontextmanager
async def reached(url: str, *, timeout: float = PATIENCE, **options: Any) -> AsyncIterator[RedisStore]:
    tasks = Tasks()
    store = await RedisStore.open(address_in(url), tasks, timeout=timeout, **options)
    try:
        yield store
    finally:
        await store.close()
        await tasks.close(timeout=PATIENCE)


@asynccontextmanager
async def asking(url: str, *, timeout: float = PATIENCE) -> AsyncIterator[Asking]:
    clients = clients_for(address_in(url), timeout=timeout, patience=timeout, connections=16)
    try:
        yield clients.asking
    finally:
        await clients.close()


def nodes_of(one: Server | Watched | Cluster) -> Sequence[Server]:
    """Those that take values in."""
    if isinstance(one, Cluster):
        return one.nodes
    return [one.master if isinstance(one, Watched) else one]


def as_the_docs_say(url: str, nodes: Sequence[Server], more: str = "") -> str:
    """The URL for a user who may do nothing but what docs/storage.md says is needed."""
    text = DOCS.read_text().replace("\\|", "|")  # as a table has to write it
    said = re.search(r"^ACL SETUSER tailfold (on >password .*)$", text, re.MULTILINE)
    assert said is not None
    for rule in more.split():
        assert f"{rule} " in text or f"{rule}`" in text, rule
    for node in nodes:
        node.client.execute_command("ACL", "LOG", "RESET")
        node.client.execute_command("ACL", "SETUSER", "tailfold", "reset", *said[1].split(), *more.split())
    return url.replace("://", "://tailfold:password@")


def place(home: bytes, name: bytes = b"k", space: Space = Space.FOLDS) -> bytes:
    """Where a server keeps what `keep` has kept."""
    return place_of(ALICE, space, home + name).key


async def keep(store: RedisStore, home: bytes = HOMES[0], value: bytes = b"v") -> None:
    await store.put(ALICE, Space.FOLDS, {home + b"k": value}, ttl=FOREVER)


async def kept(store: RedisStore, home: bytes = HOMES[0]) -> bytes | None:
    return (await store.get(ALICE, Space.FOLDS, [home + b"k"])).get(home + b"k")
