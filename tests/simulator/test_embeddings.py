from __future__ import annotations

import math

import aiohttp
import pytest
from openai import AsyncOpenAI, BadRequestError

from proxy.simulator import Simulator


async def test_the_same_text_has_the_same_unit_vector(openai: AsyncOpenAI) -> None:
    answer = await openai.embeddings.create(model="text-embedding-3-small", input=["fox", "fox", "hen"])
    fox, again, hen = (item.embedding for item in answer.data)
    assert fox == again != hen
    assert math.isclose(math.hypot(*fox), 1.0, rel_tol=1e-5)
    assert len(fox) == 1536
    assert answer.usage.prompt_tokens == 3


async def test_base64_and_floats_say_the_same(openai: AsyncOpenAI) -> None:
    # The SDK asks for base64 unless told otherwise, and decodes it.
    packed = await openai.embeddings.create(model="m", input="fox", dimensions=8)
    floats = await openai.embeddings.create(model="m", input="fox", dimensions=8, encoding_format="float")
    assert packed.data[0].embedding == pytest.approx(floats.data[0].embedding)


async def test_takes_tokens_for_text(openai: AsyncOpenAI) -> None:
    answer = await openai.embeddings.create(model="text-embedding-3-large", input=[[1, 2, 3], [4]])
    assert len(answer.data) == 2
    assert len(answer.data[0].embedding) == 3072
    assert answer.usage.total_tokens == 4


async def test_refuses_what_cannot_be_embedded(openai: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="input"):
        await openai.embeddings.create(model="m", input=[])
    with pytest.raises(BadRequestError, match="dimensions"):
        await openai.embeddings.create(model="m", input="fox", dimensions=0)


async def test_refuses_a_body_that_is_no_object(sim: Simulator, http: aiohttp.ClientSession) -> None:
    for body in (b"[]", b"{", b'{"input": "x", "encoding_format": "hex"}'):
        async with http.post(f"{sim.base_url}/embeddings", data=body) as answer:
            assert answer.status == 400
