from __future__ import annotations

import asyncio

import aiohttp
import pytest
from openai import AsyncOpenAI

from proxy.simulator import Fault, Simulator, SimulatorConfig
from tests.simulator.talk import chat, user


async def test_keeps_what_was_received(sim: Simulator, openai: AsyncOpenAI) -> None:
    await openai.chat.completions.create(**chat(user("hi")), extra_query={"a": "b"})
    (request,) = sim.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions?a=b")
    assert request.parsed == chat(user("hi"))
    assert request.header("authorization") == "Bearer sk-test"
    assert request.headers_named("content-type") == ["application/json"]
    assert request.credential == "sk-test"
    sim.forget_requests()
    assert sim.requests == []


async def test_a_body_that_is_no_json_is_parsed_as_none(sim: Simulator, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{sim.base_url}/echo", data=b"{"):
        assert sim.requests[-1].parsed is None


async def test_keeps_only_the_newest(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(recorded_requests=2)) as sim:
        for number in range(4):
            async with http.get(f"{sim.base_url}/echo/{number}"):
                pass
        assert [request.path for request in sim.requests] == ["/v1/echo/2", "/v1/echo/3"]


async def test_keeps_nothing_when_told_so(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(record=False)) as sim:
        async with http.get(f"{sim.base_url}/echo"):
            pass
        assert (sim.requests, sim.arrived) == ([], 1)


async def test_notices_a_client_that_leaves_before_the_answer(
    sim: Simulator, http: aiohttp.ClientSession
) -> None:
    sim.fail_next(Fault.HANG_BEFORE_HEADERS)
    asking = asyncio.create_task(http.get(f"{sim.base_url}/models").__aenter__())
    await sim.wait_for_request(1)
    assert sim.active == 1
    asking.cancel()
    await sim.wait_until(lambda: sim.active == 0)
    assert sim.cancelled == 1


async def test_notices_a_client_that_leaves_in_mid_stream(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(chunk_delay=60)) as sim:
        body = chat(user("one two three"), stream=True)
        async with http.post(f"{sim.base_url}/chat/completions", json=body) as answer:
            await answer.content.readline()
            assert (sim.active, sim.cancelled) == (1, 0)
            answer.close()
        await sim.wait_until(lambda: sim.active == 0)
        assert sim.cancelled == 1


async def test_notices_a_client_that_leaves_during_its_upload(sim: Simulator) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    writer.write(b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf")
    await sim.wait_for_request(1)
    writer.close()
    await sim.wait_until(lambda: sim.active == 0)
    assert (sim.cancelled, sim.requests) == (1, [])


async def test_a_client_that_stays_is_not_counted_as_gone(sim: Simulator, openai: AsyncOpenAI) -> None:
    async with await openai.chat.completions.create(**chat(user("hi")), stream=True) as stream:
        assert [chunk async for chunk in stream]
    await sim.wait_until(lambda: sim.active == 0)
    assert sim.cancelled == 0


async def test_waiting_in_vain_ends(sim: Simulator) -> None:
    with pytest.raises(TimeoutError):
        await sim.wait_until(lambda: False, timeout=0.01)
    with pytest.raises(TimeoutError):
        await sim.wait_for_request(timeout=0.01)
