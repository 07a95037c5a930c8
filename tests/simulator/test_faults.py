from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import httpx
import orjson
import pytest
from openai import (
    APIConnectionError,
    APITimeoutError,
    AsyncOpenAI,
    BadRequestError,
    InternalServerError,
    RateLimitError,
)

from proxy.simulator import Fault, Simulator, SimulatorConfig
from tests.simulator.talk import chat, user

HELLO = chat(user("one two three four five six seven eight"))
BY_HEADER = "x-sim-fault"


async def ask(client: AsyncOpenAI, fault: Fault, **options: Any) -> str:
    answer = await client.chat.completions.create(**HELLO, extra_headers={BY_HEADER: fault}, **options)
    return answer.choices[0].message.content or ""


async def ask_streaming(client: AsyncOpenAI, fault: Fault, heard: list[str], **options: Any) -> None:
    headers = {BY_HEADER: fault}
    async with await client.chat.completions.create(
        **HELLO, stream=True, extra_headers=headers, **options
    ) as stream:
        async for chunk in stream:
            heard.extend(choice.delta.content or "" for choice in chunk.choices)


async def test_rate_limited_says_when_to_come_back(openai: AsyncOpenAI) -> None:
    with pytest.raises(RateLimitError) as refused:
        await ask(openai, Fault.RATE_LIMITED)
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["retry-after"] == "1"
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"


async def test_server_error_is_a_500_in_openais_shape(openai: AsyncOpenAI) -> None:
    with pytest.raises(InternalServerError) as refused:
        await ask(openai, Fault.SERVER_ERROR)
    assert refused.value.type == "server_error"


async def test_the_sdk_retries_what_failed_once() -> None:
    async with (
        Simulator(SimulatorConfig(retry_after=0.01)) as sim,
        AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=2) as client,
    ):
        sim.fail_next(Fault.RATE_LIMITED, times=2)
        answer = await client.chat.completions.create(**HELLO)
        assert answer.choices[0].finish_reason == "stop"
        assert sim.arrived == 3


async def test_faults_wait_their_turn(sim: Simulator, openai: AsyncOpenAI) -> None:
    sim.fail_next(Fault.RATE_LIMITED)
    sim.fail_next("server_error")
    with pytest.raises(RateLimitError):
        await openai.chat.completions.create(**HELLO)
    with pytest.raises(InternalServerError):
        await openai.chat.completions.create(**HELLO)
    assert await openai.chat.completions.create(**HELLO)


async def test_a_model_name_can_ask_for_a_fault(openai: AsyncOpenAI) -> None:
    with pytest.raises(RateLimitError):
        await openai.chat.completions.create(**{**HELLO, "model": "fault:rate_limited"})
    with pytest.raises(BadRequestError, match="No fault is called 'nonsense'"):
        await openai.chat.completions.create(**{**HELLO, "model": "fault:nonsense"})


async def test_stream_options_are_refused_only_where_they_are_given(openai: AsyncOpenAI) -> None:
    heard: list[str] = []
    with pytest.raises(BadRequestError, match="stream_options"):
        await ask_streaming(
            openai, Fault.REFUSE_STREAM_OPTIONS, heard, stream_options={"include_usage": True}
        )
    await ask_streaming(openai, Fault.REFUSE_STREAM_OPTIONS, heard)
    assert "".join(heard).startswith("one two")


async def test_a_hang_before_headers_ends_when_the_client_leaves(sim: Simulator, openai: AsyncOpenAI) -> None:
    with pytest.raises(APITimeoutError):
        await ask(openai, Fault.HANG_BEFORE_HEADERS, timeout=0.5)
    await sim.wait_until(lambda: sim.active == 0)
    assert sim.cancelled == 1


async def test_a_hang_in_mid_stream_ends_when_the_client_leaves(sim: Simulator, openai: AsyncOpenAI) -> None:
    heard: list[str] = []
    with pytest.raises(httpx.ReadTimeout):
        await ask_streaming(openai, Fault.HANG_MID_STREAM, heard, timeout=0.5)
    assert "".join(heard).startswith("one two")
    await sim.wait_until(lambda: sim.active == 0)
    assert sim.cancelled == 1


async def test_a_hanging_request_does_not_keep_the_simulator_from_stopping(
    http: aiohttp.ClientSession,
) -> None:
    async with Simulator() as sim:
        sim.fail_next(Fault.HANG_BEFORE_HEADERS)
        asking = asyncio.create_task(http.post(f"{sim.base_url}/echo").__aenter__())
        await sim.wait_until(lambda: len(sim.requests) == 1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await asking


async def test_a_disconnect_before_headers_is_a_connection_error(openai: AsyncOpenAI) -> None:
    with pytest.raises(APIConnectionError):
        await ask(openai, Fault.DISCONNECT_BEFORE_HEADERS)


@pytest.mark.parametrize("fault", [Fault.RESET_MID_CHUNK, Fault.TRUNCATED_BODY])
async def test_a_broken_body_is_an_error_not_a_short_answer(openai: AsyncOpenAI, fault: Fault) -> None:
    with pytest.raises(APIConnectionError):
        await ask(openai, fault)


async def test_a_reset_comes_in_the_middle_of_a_chunk(sim: Simulator) -> None:
    raw = await _raw_answer(sim, Fault.RESET_MID_CHUNK)
    _, _, body = raw.partition(b"\r\n\r\n")
    *_, last_size, last_data = body.split(b"\r\n")
    assert last_data.startswith(b"data: ")
    assert 0 < len(last_data) < int(last_size, 16)


async def test_a_reset_stream_breaks_after_its_first_half(openai: AsyncOpenAI) -> None:
    heard: list[str] = []
    with pytest.raises(httpx.ReadError):
        await ask_streaming(openai, Fault.RESET_MID_CHUNK, heard)
    assert "".join(heard).startswith("one two")


async def test_a_truncated_stream_has_no_last_chunk(openai: AsyncOpenAI) -> None:
    heard: list[str] = []
    with pytest.raises(httpx.RemoteProtocolError):
        await ask_streaming(openai, Fault.TRUNCATED_BODY, heard)
    assert "".join(heard).startswith("one two")


async def test_a_close_delimited_stream_can_end_without_done(sim: Simulator) -> None:
    raw = await _raw_answer(sim, Fault.CUT_STREAM_CLOSE_DELIMITED)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"content-length" not in head
    assert b"connection: close" in head
    assert body.startswith(b"data: {")
    assert body.endswith(b"\n\n")
    assert b"[DONE]" not in body
    assert b'"finish_reason":"stop"' not in body


async def test_malformed_events_do_not_parse(openai: AsyncOpenAI) -> None:
    with pytest.raises(ValueError):
        await ask_streaming(openai, Fault.MALFORMED_SSE, [])


async def test_a_slow_drip_arrives_whole(sim: Simulator, openai: AsyncOpenAI) -> None:
    heard: list[str] = []
    await ask_streaming(openai, Fault.SLOW_DRIP, heard)
    assert "".join(heard) == HELLO["messages"][0]["content"]
    assert await ask(openai, Fault.SLOW_DRIP) == HELLO["messages"][0]["content"]


async def test_an_unknown_fault_is_refused_with_the_known_ones(
    sim: Simulator, http: aiohttp.ClientSession
) -> None:
    async with http.get(f"{sim.base_url}/models", headers={BY_HEADER: "boredom"}) as answer:
        assert answer.status == 400
        assert "slow_drip" in (await answer.json())["error"]["message"]


async def _raw_answer(sim: Simulator, fault: Fault) -> bytes:
    body = orjson.dumps({**HELLO, "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\n"
        + f"{BY_HEADER}: {fault}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    received = bytearray()
    try:
        while piece := await reader.read(65536):
            received += piece
    except ConnectionResetError:
        pass  # the reset is what was asked for
    writer.close()
    return bytes(received)
