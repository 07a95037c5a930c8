"""What happens, told to whoever listens in this process: each hears of one caller, or of all.

A listener that does not keep up loses the oldest; nobody waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_MOST_WAITING = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is a word such as `fold_made`; `data` holds numbers and names, nothing that was said."""

    kind: str
    tenant: bytes
    conversation: str
    data: Mapping[str, Any]
    at: float = field(default_factory=time.time)


class Listener:
    def __init__(self, tenant: bytes | None) -> None:
        self._tenant = tenant
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)

    def hear(self, event: Event) -> None:
        if self._tenant is not None and event.tenant != self._tenant:
            return
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(event)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            yield await self._waiting.get()


class Events:
    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener.hear(event)

    @contextmanager
    def listening(self, tenant: bytes | None = None) -> Iterator[Listener]:
        """To one caller's events, or to all."""
        listener = Listener(tenant)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
