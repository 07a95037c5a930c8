"""The store's time limit: what is late because of us is waited for, what is late by itself is not."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing

import pytest

from proxy.store.limit import Limit


async def test_an_answer_that_came_while_we_were_held_up_is_taken() -> None:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.setblocking(False)

        def hold_up() -> None:
            theirs.send(b"!")
            time.sleep(0.2)

        async with Limit(0.1):
            asyncio.get_running_loop().call_soon(hold_up)
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b"!"


async def test_what_does_not_come_is_not_waited_for() -> None:
    with pytest.raises(TimeoutError):
        async with Limit(0.01):
            await asyncio.Event().wait()


async def test_however_often_we_are_held_up_it_comes_to_an_end() -> None:
    loop = asyncio.get_running_loop()
    held_up = 0

    def hold_up() -> None:
        nonlocal held_up
        held_up += 1
        time.sleep(0.02)
        if not over:
            loop.call_soon(hold_up)

    over = False
    loop.call_soon(hold_up)
    with pytest.raises(TimeoutError):
        async with Limit(0.05):
            await asyncio.Event().wait()
    over = True
    assert held_up > 2


async def test_whoever_is_cancelled_meanwhile_is_cancelled() -> None:
    async def wait() -> None:
        async with Limit(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_fails_inside_fails() -> None:
    with pytest.raises(KeyError):
        async with Limit(60):
            raise KeyError
