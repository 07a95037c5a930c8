from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from proxy.tasks import Tasks


async def test_a_failure_is_logged_and_not_lost() -> None:
    async def fail() -> None:
        raise ValueError("something private")

    tasks = Tasks()
    with capture_logs() as lines:
        tasks.start(fail(), name="failing")
        await tasks.close(timeout=1)
    assert [(line["event"], line["task"]) for line in lines] == [("background task failed", "failing")]


async def test_closing_waits_for_what_ends_in_time() -> None:
    done = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(True)

    tasks = Tasks()
    tasks.start(work(), name="work")
    await tasks.close(timeout=1)
    assert done == [True]


async def test_closing_cancels_what_does_not_end() -> None:
    tasks = Tasks()
    endless = tasks.start(asyncio.Event().wait(), name="endless")
    await tasks.close(timeout=0)
    assert endless.cancelled()
