"""The one door for background work: it keeps a reference, logs a failure and is awaited at shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("background task failed", task=task.get_name(), exc_info=failure)

    async def close(self, timeout: float) -> None:
        """Wait for what is running, then cancel what is left."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
