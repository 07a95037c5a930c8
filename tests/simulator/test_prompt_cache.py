from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from proxy.simulator import Simulator
from proxy.simulator.prompt_cache import PromptCache
from tests.simulator.talk import assistant, chat, tool, user

LONG = user("word " * 1500)


async def cached_tokens(client: AsyncOpenAI, body: dict[str, Any]) -> int:
    usage = (await client.chat.completions.create(**body)).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


async def test_a_repeated_prefix_is_cached_in_steps_of_128(openai: AsyncOpenAI) -> None:
    assert await cached_tokens(openai, chat(LONG)) == 0
    assert await cached_tokens(openai, chat(LONG, assistant("yes"), user("and?"))) == 1408


async def test_a_changed_prefix_is_not_cached(openai: AsyncOpenAI) -> None:
    await cached_tokens(openai, chat(LONG))
    assert await cached_tokens(openai, chat(user("other"), LONG)) == 0
    assert await cached_tokens(openai, chat(LONG, model="gpt-4.1")) == 0
    assert await cached_tokens(openai, chat(LONG, tools=[tool("look")])) == 0


async def test_another_caller_has_a_cache_of_its_own(sim: Simulator, openai: AsyncOpenAI) -> None:
    await cached_tokens(openai, chat(LONG))
    async with AsyncOpenAI(base_url=sim.base_url, api_key="sk-other", max_retries=0) as other:
        assert await cached_tokens(other, chat(LONG)) == 0
    assert await cached_tokens(openai, chat(LONG)) == 1408


@pytest.mark.parametrize(("minimum", "cached"), [(1024, 0), (256, 384), (None, 0)])
def test_a_short_prefix_is_not_worth_caching(minimum: int | None, cached: int) -> None:
    cache = PromptCache(minimum)
    assert cache.cached_tokens(b"me", ["m"], [400]) == 0
    assert cache.cached_tokens(b"me", ["m", "n"], [400, 500]) == cached
