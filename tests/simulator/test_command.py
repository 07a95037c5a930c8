from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from openai import APIConnectionError, APIError, AsyncOpenAI, BadRequestError, RateLimitError

from tests.simulator.talk import chat, user


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.simulator", "--port", "0", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        assert line.startswith("simulator listening at http://127.0.0.1:")
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_serves_with_the_settings_given_and_ends_when_asked() -> None:
    async with (
        command("--window", "50", "--counting", "rough", "--model", "mine") as (process, base_url),
        AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["mine"]
        assert (await client.chat.completions.create(**chat(user("hi")))).choices[0].message.content == "hi"
        with pytest.raises(BadRequestError, match="maximum context length is 50 tokens"):
            await client.chat.completions.create(**chat(user("word " * 100)))
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_fails_on_request_on_its_own_event_loop_too() -> None:
    async with (
        command("--counting", "rough") as (_, base_url),
        AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client,
    ):
        for fault, error in (("rate_limited", RateLimitError), ("reset_mid_chunk", APIConnectionError)):
            with pytest.raises(error):
                await client.chat.completions.create(**chat(user("hi"), model=f"fault:{fault}"))


async def test_plays_the_summary_model_and_the_difficult_upstream() -> None:
    difficult = ("--strict-template", "--overflow", "event", "--window", "200", "--counting", "rough")
    async with (
        command(*difficult, "--summaries", "refusal", "--summary-delay", "0.01") as (_, base_url),
        AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client,
    ):
        asked = chat(user("⟦transcript⟧\n⟦0 user⟧\nhello\n⟦end of transcript⟧"))
        answer = await client.chat.completions.create(**asked)
        assert answer.choices[0].message.content == "I'm sorry, but I can't help with that."
        with pytest.raises(BadRequestError, match="must alternate"):
            await client.chat.completions.create(**chat(user("a"), user("b")))
        with pytest.raises(APIError, match="maximum context length is 200 tokens"):
            async for _ in await client.chat.completions.create(**chat(user("word " * 300)), stream=True):
                pass
