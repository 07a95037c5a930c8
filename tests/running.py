"""Tailfold inside the test's own event loop, on a random port."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from proxy.app import Tailfold
from proxy.counting.tokenizer import Encodings
from proxy.rooms import Rooms
from proxy.settings import Settings
from proxy.tasks import Tasks

# Loading a vocabulary takes a while: all proxies of a test process share them.
_ENCODINGS = Encodings()


@dataclass(frozen=True, slots=True)
class Running:
    app: Tailfold
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, summed over the labels that are not given."""
        total = 0.0
        for line in self.app.metrics.exposition().decode().splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")).items():
                total += float(found[2])
        return total

    def tokens(self, kind: str) -> float:
        return self.metric("tailfold_upstream_tokens_total", kind=kind)


@asynccontextmanager
async def running(
    upstream: str,
    *,
    encodings: Encodings | None = None,
    store_time_limit: float | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """A proxy for `upstream`; groups of settings as dicts, e.g. timeouts={"idle": 0.2}. With a
    `store_time_limit` of its own it does not take a store for lost because the machine is busy.
    """
    settings["timeouts"] = {"drain": 0.5, **settings.get("timeouts", {})}
    # Most tests look at every request that arrives upstream, and this one would be nobody's.
    settings["windows"] = {"ask": False, **settings.get("windows", {})}
    settings.setdefault("store", "memory://")
    listening = socket.create_server(("127.0.0.1", 0))
    made = Settings(upstream=upstream, **settings)
    app = Tailfold(made, encodings or _ENCODINGS)
    if store_time_limit is not None:
        app.rooms = Rooms(made, app.metrics, Tasks(), _ENCODINGS, store_time_limit=store_time_limit)
    await app.start(listening)
    try:
        yield Running(app, listening.getsockname()[1])
    finally:
        await app.drain()
