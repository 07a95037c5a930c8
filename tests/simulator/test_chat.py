from __future__ import annotations

import gzip
from typing import Any

import aiohttp
import orjson
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.simulator import Simulator, SimulatorConfig
from tests.simulator.talk import calls, chat, result, tool, user


async def completion(client: AsyncOpenAI, body: dict[str, Any]) -> ChatCompletion:
    answer: ChatCompletion = await client.chat.completions.create(**body)
    return answer


async def streamed(client: AsyncOpenAI, body: dict[str, Any]) -> list[ChatCompletionChunk]:
    async with await client.chat.completions.create(**body, stream=True) as stream:
        return [chunk async for chunk in stream]


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def test_answers_with_the_last_user_text(openai: AsyncOpenAI) -> None:
    answer = await completion(openai, chat(user("first"), user("hello 世界 🦊")))
    assert answer.choices[0].message.content == "hello 世界 🦊"
    assert answer.choices[0].finish_reason == "stop"


async def test_the_same_request_gets_the_same_bytes(sim: Simulator, http: aiohttp.ClientSession) -> None:
    bodies = set()
    for _ in range(2):
        async with http.post(f"{sim.base_url}/chat/completions", json=chat(user("again"))) as answer:
            bodies.add(await answer.read())
    assert len(bodies) == 1


async def test_counts_the_framing_of_messages(openai: AsyncOpenAI) -> None:
    plain = await completion(openai, chat(user("hello")))
    named = await completion(openai, chat({**user("hello"), "name": "ann"}))
    assert plain.usage is not None
    assert named.usage is not None
    assert plain.usage.prompt_tokens == 3 + 3 + 1 + 1
    assert named.usage.prompt_tokens == plain.usage.prompt_tokens + 2
    assert plain.usage.total_tokens == plain.usage.prompt_tokens + plain.usage.completion_tokens


async def test_a_tokenizer_factor_scales_usage() -> None:
    async def prompt_tokens(factor: float) -> int:
        async with (
            Simulator(SimulatorConfig(tokenizer_factor=factor)) as sim,
            AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client,
        ):
            answer = await completion(client, chat(user("word " * 993)))
            assert answer.usage is not None
            return answer.usage.prompt_tokens

    assert await prompt_tokens(1.25) == round(1.25 * await prompt_tokens(1.0))


async def test_stops_at_the_declared_length(openai: AsyncOpenAI) -> None:
    text = "one two three four five"
    for limit in ("max_tokens", "max_completion_tokens"):
        answer = await completion(openai, {**chat(user(text)), limit: 2})
        assert answer.choices[0].message.content == "one two"
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2


async def test_gives_as_many_choices_as_asked(openai: AsyncOpenAI) -> None:
    answer = await completion(openai, chat(user("hi"), n=3))
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    chunks = await streamed(openai, chat(user("hi"), n=3))
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1, 2}


async def test_streams_the_answer_that_it_would_give_whole(openai: AsyncOpenAI) -> None:
    chunks = await streamed(openai, chat(user("hello 世界 🦊 there")))
    assert said(chunks) == "hello 世界 🦊 there"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_streams_without_usage_unless_asked(sim: Simulator, http: aiohttp.ClientSession) -> None:
    async with http.post(
        f"{sim.base_url}/chat/completions", json=chat(user("hi there"), stream=True)
    ) as answer:
        events = (await answer.read()).split(b"\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert events[-2:] == [b"data: [DONE]", b""]
    assert not any(b"usage" in event for event in events)


async def test_streams_usage_last_and_null_before(sim: Simulator, http: aiohttp.ClientSession) -> None:
    body = chat(user("hi there"), stream=True, stream_options={"include_usage": True})
    async with http.post(f"{sim.base_url}/chat/completions", json=body) as answer:
        *events, done, _ = (await answer.read()).split(b"\n\n")
    chunks = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    assert done == b"data: [DONE]"
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 2


async def test_calls_the_tool_that_the_user_names(openai: AsyncOpenAI) -> None:
    answer = await completion(openai, chat(user("please call:look now"), tools=[tool("look")]))
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.function.name == "look"
    assert orjson.loads(call.function.arguments) == {"text": "please call:look now"}


async def test_streams_parallel_tool_calls_as_fragments(openai: AsyncOpenAI) -> None:
    body = chat(user("call:look and call:find"), tools=[tool("look"), tool("find")])
    async with openai.chat.completions.stream(**body) as stream:
        final = await stream.get_final_completion()
    found = final.choices[0].message.tool_calls or []
    assert [call.function.name for call in found] == ["look", "find"]
    assert all(orjson.loads(call.function.arguments) for call in found)
    assert len({call.id for call in found}) == 2


async def test_answers_in_words_once_the_tool_has_spoken(openai: AsyncOpenAI) -> None:
    body = chat(user("call:look"), calls("c1"), result("c1", "a red fox"), tools=[tool("look")])
    answer = await completion(openai, body)
    assert answer.choices[0].message.content == "a red fox"


@pytest.mark.parametrize(
    ("choice", "called"),
    [("none", []), ("required", ["look"]), ({"type": "function", "function": {"name": "find"}}, ["find"])],
)
async def test_heeds_tool_choice(openai: AsyncOpenAI, choice: Any, called: list[str]) -> None:
    body = chat(user("call:look"), tools=[tool("look"), tool("find")], tool_choice=choice)
    message = (await completion(openai, body)).choices[0].message
    assert [call.function.name for call in message.tool_calls or () if call.type == "function"] == called


async def test_refuses_a_prompt_longer_than_the_window() -> None:
    async with (
        Simulator(SimulatorConfig(window=100, windows={"wide": 1000})) as sim,
        AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(BadRequestError) as refused:
            await completion(client, chat(user("word " * 200)))
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "messages"
        limit = "This model's maximum context length is 100 tokens. However, "
        assert limit + "your messages resulted in 208 tokens." in refused.value.message
        with pytest.raises(BadRequestError, match=r"you requested 108 tokens \(8 in the messages, 100 in"):
            await completion(client, chat(user("word"), max_tokens=100))
        assert (await completion(client, chat(user("word " * 200), model="wide"))).usage


async def test_reads_a_compressed_request(sim: Simulator, http: aiohttp.ClientSession) -> None:
    body = gzip.compress(orjson.dumps(chat(user("squeezed"))))
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    async with http.post(f"{sim.base_url}/chat/completions", data=body, headers=headers) as answer:
        assert (await answer.json())["choices"][0]["message"]["content"] == "squeezed"
    assert sim.requests[-1].body == body
    assert sim.requests[-1].parsed == chat(user("squeezed"))


async def test_refuses_a_model_it_does_not_know_when_told_to_be_strict() -> None:
    async with (
        Simulator(SimulatorConfig(any_model=False)) as sim,
        AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(NotFoundError) as refused:
            await completion(client, chat(user("hi"), model="gpt-none"))
        assert refused.value.code == "model_not_found"
