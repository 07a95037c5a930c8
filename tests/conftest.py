"""What most tests stand on: a simulated provider, and Tailfold in front of it, both on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from openai import AsyncOpenAI

from proxy.simulator import Simulator
from tests.running import Running, running


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that users run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def upstream() -> AsyncIterator[Simulator]:
    async with Simulator() as simulator:
        yield simulator


@pytest.fixture
async def tailfold(upstream: Simulator) -> AsyncIterator[Running]:
    async with running(upstream.base_url) as proxy:
        yield proxy


@pytest.fixture
async def client(tailfold: Running) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=tailfold.base_url, api_key="sk-test", max_retries=0) as sdk:
        yield sdk
