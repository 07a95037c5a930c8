"""A place for a library that blocks: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

import structlog

log = structlog.get_logger("tailfold")

T = TypeVar("T")


class Apart:
    """Begins with its first work. Whatever is stuck there when the process ends does not hold it up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._starting = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Who is cancelled while waiting here has the work cancelled there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(self._left_behind)
                Thread(target=self._loop.run_forever, name=self._name, daemon=True).start()
            return self._loop

    def _left_behind(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # asyncio's own handler writes out what the failure says, and that may be a message or a key.
        if (failure := context.get("exception")) is not None:
            log.warning("a failure was left behind", by=self._name, failure=type(failure).__name__)
