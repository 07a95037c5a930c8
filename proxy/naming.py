"""Finding a conversation's lanes by its name: written down a moment later, for many requests at once."""

from __future__ import annotations

import asyncio

from proxy.histories import Line
from proxy.lanes import Lane
from proxy.records import Records
from proxy.tasks import Tasks

PAUSE = 0.5


class Naming:
    """What a process that is killed has not written yet is written with the conversation's next request."""

    def __init__(self, records: Records, tasks: Tasks, *, pause: float = PAUSE) -> None:
        self._records = records
        self._tasks = tasks
        self._pause = pause
        self._unnamed: dict[tuple[bytes, str], tuple[Line, Lane]] = {}
        self._waiting: asyncio.Task[None] | None = None

    def soon(self, tenant: bytes, line: Line, lane: Lane) -> None:
        self._unnamed[tenant, lane.id] = (line, lane)
        if self._waiting is None or self._waiting.done():
            self._waiting = self._tasks.start(self._later(), name="name lanes")

    async def settle(self) -> None:
        """Without waiting any longer."""
        unnamed, self._unnamed = self._unnamed, {}
        for (tenant, _), (line, lane) in unnamed.items():
            await self._records.name(tenant, line, lane)

    async def _later(self) -> None:
        while self._unnamed:
            await asyncio.sleep(self._pause)
            await self.settle()
