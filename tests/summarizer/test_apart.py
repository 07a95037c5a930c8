"""What blocks apart from the loop that serves blocks nobody else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.summarizer.apart import Apart


async def where() -> str:
    return threading.current_thread().name


async def blocking() -> None:
    time.sleep(0.3)  # noqa: ASYNC251 - the point of it


async def failing() -> None:
    raise ValueError("canary")


async def test_work_is_done_in_a_thread_of_its_own_and_its_result_comes_back() -> None:
    apart = Apart("elsewhere")
    assert await apart.run(where()) == "elsewhere"
    with pytest.raises(ValueError, match="canary"):
        await apart.run(failing())


async def test_nothing_here_waits_for_what_blocks_there() -> None:
    apart = Apart("elsewhere")
    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await apart.run(blocking())
    assert time.perf_counter() - began < 0.25


async def test_who_is_cancelled_here_has_the_work_cancelled_there() -> None:
    ended = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    apart = Apart("elsewhere")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await apart.run(endless())
    assert await asyncio.to_thread(ended.wait, 5)


async def test_a_failure_that_nobody_awaits_is_told_by_name_alone() -> None:
    async def leaving_behind(work: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        left = loop.create_task(work)
        await asyncio.wait([left])

    with capture_logs() as lines:
        await Apart("elsewhere").run(leaving_behind(failing()))
    [line] = lines
    assert line["failure"] == "ValueError"
    assert "canary" not in repr(line)
