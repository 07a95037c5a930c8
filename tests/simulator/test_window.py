"""A prompt that is too long is refused in the ways that upstreams have, or cut without a word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest
from openai import APIError, AsyncOpenAI

from proxy.simulator import Simulator, SimulatorConfig
from proxy.simulator.config import Overflow
from proxy.simulator.window import newest_that_fit
from proxy.windows.overflow import overflow
from tests.simulator.talk import Message, assistant, chat, user

LONG = "word " * 60
SYSTEM: Message = {"role": "system", "content": "Be brief."}


@asynccontextmanager
async def refusing(manner: Overflow) -> AsyncIterator[Simulator]:
    async with Simulator(SimulatorConfig(window=50, overflow=manner)) as simulator:
        yield simulator


async def sent(
    simulator: Simulator, http: aiohttp.ClientSession, *messages: Message, stream: bool = False
) -> tuple[int, bytes]:
    body = chat(*messages, stream=stream)
    async with http.post(f"{simulator.base_url}/chat/completions", json=body) as answer:
        return answer.status, await answer.read()


async def test_usually_by_its_status(http: aiohttp.ClientSession) -> None:
    async with refusing("status") as simulator:
        for streams in (False, True):
            status, body = await sent(simulator, http, user(LONG), stream=streams)
            assert status == 400
            assert overflow(status, orjson.loads(body))


@pytest.mark.parametrize("manner", ["event", "ok"])
async def test_in_an_answer_that_began_as_a_good_one(manner: Overflow, http: aiohttp.ClientSession) -> None:
    async with refusing(manner) as simulator:
        status, body = await sent(simulator, http, user(LONG))
        assert status == 200
        assert overflow(status, orjson.loads(body))
        status, body = await sent(simulator, http, user(LONG), stream=True)
        event, done, _ = body.split(b"\n\n")
        assert status == 200
        assert overflow(None, orjson.loads(event.removeprefix(b"data: ")))
        assert done == b"data: [DONE]"
        assert (await sent(simulator, http, user("short")))[0] == 200


async def test_the_sdk_takes_such_an_event_for_an_error() -> None:
    async with (
        refusing("event") as simulator,
        AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(APIError, match="maximum context length is 50 tokens"):
            async for _ in await client.chat.completions.create(**chat(user(LONG)), stream=True):
                pass


async def test_or_only_the_newest_is_read_and_billed(http: aiohttp.ClientSession) -> None:
    async with refusing("truncate") as simulator:
        messages = [SYSTEM, user(LONG), assistant("b"), user("c")]
        status, body = await sent(simulator, http, *messages)
        assert status == 200
        _, kept = await sent(simulator, http, SYSTEM, assistant("b"), user("c"))
        assert orjson.loads(body)["usage"] == orjson.loads(kept)["usage"]
        assert orjson.loads(body)["choices"][0]["message"]["content"] == "c"
        _, one_message = await sent(simulator, http, user(LONG))
        assert orjson.loads(one_message)["usage"]["prompt_tokens"] == 50


def test_what_is_cut_is_the_oldest_that_was_spoken() -> None:
    messages = [SYSTEM, user("a"), assistant("b"), user("c")]
    sizes = [3, 13, 23, 33, 43]
    assert newest_that_fit(messages, sizes, 43) == messages
    assert newest_that_fit(messages, sizes, 42) == [SYSTEM, assistant("b"), user("c")]
    assert newest_that_fit(messages, sizes, 32) == [SYSTEM, user("c")]
    assert newest_that_fit(messages, sizes, 1) == [SYSTEM, user("c")]
    assert newest_that_fit([SYSTEM, SYSTEM], [3, 13, 23], 5) == [SYSTEM, SYSTEM]


@pytest.mark.parametrize(("caps", "status"), [(False, 400), (True, 200)])
async def test_an_answer_that_finds_no_place_is_refused_or_capped(
    http: aiohttp.ClientSession, caps: bool, status: int
) -> None:
    async with Simulator(SimulatorConfig(window=50, caps_answers=caps)) as simulator:
        body = chat(user("Hi."), max_tokens=50)
        async with http.post(f"{simulator.base_url}/chat/completions", json=body) as answer:
            assert answer.status == status


async def test_an_answer_longer_than_the_model_gives_is_refused(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(longest_answers={"gpt-4o": 300})) as simulator:
        url = f"{simulator.base_url}/chat/completions"
        async with http.post(url, json={**chat(user("short")), "max_tokens": 301}) as refused:
            assert refused.status == 400
            error = (await refused.json())["error"]
        assert error["message"] == (
            "max_tokens is too large: 301. This model supports at most 300 completion tokens, whereas you "
            "provided 301."
        )
        async with http.post(url, json={**chat(user("short")), "max_tokens": 300}) as answer:
            assert answer.status == 200
