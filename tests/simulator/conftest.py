from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from openai import AsyncOpenAI

from proxy.simulator import Simulator


@pytest.fixture
async def sim() -> AsyncIterator[Simulator]:
    async with Simulator() as simulator:
        yield simulator


@pytest.fixture
async def openai(sim: Simulator) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=sim.base_url, api_key="sk-test", max_retries=0) as client:
        yield client


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session
