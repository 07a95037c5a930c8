"""The openai SDK behaves through Tailfold as it does without: every test runs both ways."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from openai import (
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    PermissionDeniedError,
    RateLimitError,
    UnprocessableEntityError,
)
from openai.types.chat import ChatCompletionChunk

from proxy.simulator import Answer, Fault, Framing, Simulator, SimulatorConfig
from tests.running import running
from tests.sdk_support import DONE, EVENT_STREAM, PATIENCE, asked, delta, said, sdk, streamed
from tests.simulator.talk import calls, chat, result, tool, user

HELLO = chat(user("one two three four five six seven eight"))


@dataclass(frozen=True, slots=True)
class Way:
    """A provider, and an SDK that reaches it directly or through Tailfold."""

    upstream: Simulator
    base_url: str
    client: AsyncOpenAI


@asynccontextmanager
async def reached(how: str, config: SimulatorConfig | None = None, **options: Any) -> AsyncIterator[Way]:
    async with Simulator(config) as upstream:
        if how == "direct":
            async with sdk(upstream.base_url, **options) as client:
                yield Way(upstream, upstream.base_url, client)
        else:
            async with running(upstream.base_url) as proxy, sdk(proxy.base_url, **options) as client:
                yield Way(upstream, proxy.base_url, client)


@pytest.fixture(params=["direct", "through"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def way(how: str) -> AsyncIterator[Way]:
    async with reached(how) as way:
        yield way


# Chat.


async def test_an_answer_comes_whole(way: Way) -> None:
    answer = await asked(way.client, chat(user("first"), user("hello 世界 🦊"), seed=7, temperature=0.5))
    assert answer.choices[0].message.content == "hello 世界 🦊"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_an_answer_comes_in_chunks(way: Way) -> None:
    chunks = await streamed(way.client, chat(user("hello 世界 🦊 there")))
    assert said(chunks) == "hello 世界 🦊 there"
    assert len(chunks) > 4
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_ends_a_stream_whose_client_asked_for_it(way: Way) -> None:
    whole = await asked(way.client, HELLO)
    chunks = await streamed(way.client, HELLO, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in chunks] == [None] * (len(chunks) - 1) + [whole.usage]
    assert chunks[-1].choices == []


async def test_the_stream_helper_puts_an_answer_together(way: Way) -> None:
    async with way.client.chat.completions.stream(**HELLO) as stream:
        kinds = {received.type async for received in stream}
        final = await stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == HELLO["messages"][0]["content"]


async def test_an_answer_ends_at_its_declared_length(way: Way) -> None:
    answer = await asked(way.client, HELLO, max_completion_tokens=2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("one two", "length")
    chunks = await streamed(way.client, HELLO, max_tokens=2)
    assert (said(chunks), chunks[-1].choices[0].finish_reason) == ("one two", "length")


async def test_several_choices_are_given_side_by_side(way: Way) -> None:
    answer = await asked(way.client, HELLO, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    chunks = await streamed(way.client, HELLO, n=3)
    assert [chunk.choices[0].index for chunk in chunks] == [0, 1, 2] * (len(chunks) // 3)


async def test_a_large_history_is_taken(way: Way) -> None:
    messages = [user("word " * 2000) for _ in range(10)]
    answer = await asked(way.client, chat(*messages))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 20_000
    assert len(await streamed(way.client, chat(*messages))) == 66


async def test_many_requests_at_once_are_not_mixed_up(way: Way) -> None:
    async def echoed(number: int) -> str:
        text = f"number {number}"
        if number % 2:
            return said(await streamed(way.client, chat(user(text))))
        return (await asked(way.client, chat(user(text)))).choices[0].message.content or ""

    answers = await asyncio.gather(*(echoed(number) for number in range(40)))
    assert answers == [f"number {number}" for number in range(40)]


# Tools.


async def test_a_tool_is_called(way: Way) -> None:
    answer = await asked(way.client, chat(user("please call:look now"), tools=[tool("look")]))
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.tool_calls is not None
    (call,) = answer.choices[0].message.tool_calls
    assert call.type == "function"
    assert call.function.name == "look"
    assert orjson.loads(call.function.arguments) == {"text": "please call:look now"}


async def test_tool_calls_are_streamed_as_fragments(way: Way) -> None:
    body = chat(user("call:look and call:find"), tools=[tool("look"), tool("find")])
    chunks = await streamed(way.client, body)
    fragments = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    names = [call.function.name for call in fragments if call.function and call.function.name]
    assert names == ["look", "find"]
    for index in (0, 1):
        pieces = [
            call.function.arguments or "" for call in fragments if call.index == index and call.function
        ]
        assert len(pieces) > 2
        assert orjson.loads("".join(pieces)) == {"text": "call:look and call:find"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_a_tool_result_is_answered_in_words(way: Way) -> None:
    body = chat(
        user("call:look"), calls("c1", "c2"), result("c1"), result("c2", "a red fox"), tools=[tool("look")]
    )
    assert (await asked(way.client, body)).choices[0].message.content == "a red fox"
    assert said(await streamed(way.client, body)) == "a red fox"


async def test_a_call_without_its_result_is_refused_in_the_upstreams_words(way: Way) -> None:
    with pytest.raises(BadRequestError, match="did not have response messages: c1"):
        await asked(way.client, chat(user("call:look"), calls("c1"), user("well?")))


# Embeddings, models, files.


async def test_embeddings_have_their_dimensions(way: Way) -> None:
    made = await way.client.embeddings.create(
        model="text-embedding-3-small", input=["one", "two", "one"], dimensions=8
    )
    vectors = [item.embedding for item in made.data]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    assert vectors[0] == vectors[2] != vectors[1]
    assert made.usage.prompt_tokens == 3
    plain = await way.client.embeddings.create(
        model="text-embedding-3-small", input="one", dimensions=8, encoding_format="float"
    )
    assert plain.data[0].embedding == pytest.approx(vectors[0])


async def test_models_are_listed_and_found(way: Way) -> None:
    assert "gpt-4o" in [model.id async for model in way.client.models.list()]
    assert (await way.client.models.retrieve("gpt-4o")).id == "gpt-4o"


async def test_a_model_name_with_a_slash_keeps_its_spelling(how: str) -> None:
    async with reached(how, SimulatorConfig(model_names=("org/model:free",))) as way:
        assert (await way.client.models.retrieve("org/model:free")).id == "org/model:free"
        seen = way.upstream.requests[-1].path
    async with reached("direct", SimulatorConfig(model_names=("org/model:free",))) as plain:
        await plain.client.models.retrieve("org/model:free")
        assert plain.upstream.requests[-1].path == seen


async def test_a_file_of_several_megabytes_comes_back_as_it_was_sent(way: Way) -> None:
    content = os.urandom(5 * 2**20 + 1)
    stored = await way.client.files.create(file=("päper.bin", content), purpose="user_data")
    assert (stored.bytes, stored.filename, stored.purpose) == (len(content), "päper.bin", "user_data")
    assert stored.to_dict()["sha256"] == hashlib.sha256(content).hexdigest()
    assert (await way.client.files.content(stored.id)).content == content


async def test_a_file_is_uploaded_from_disk_and_downloaded_piece_by_piece(way: Way, tmp_path: Path) -> None:
    source, copy = tmp_path / "data.jsonl", tmp_path / "copy.jsonl"
    source.write_bytes(b'{"line":"\xc3\xa4"}\n' * 100_000)
    stored = await way.client.files.create(file=source, purpose="batch")
    async with way.client.files.with_streaming_response.content(stored.id) as response:
        assert response.headers["content-length"] == str(source.stat().st_size)
        assert response.headers["content-disposition"] == 'attachment; filename="data.jsonl"'
        await response.stream_to_file(copy)
    assert copy.read_bytes() == source.read_bytes()


async def test_an_empty_file_is_a_file(way: Way) -> None:
    stored = await way.client.files.create(file=("empty.txt", b""), purpose="batch")
    assert (await way.client.files.content(stored.id)).content == b""


async def test_files_are_listed_found_and_deleted(way: Way) -> None:
    first = await way.client.files.create(file=("a.txt", b"a"), purpose="batch")
    second = await way.client.files.create(file=("b.txt", b"b"), purpose="batch")
    assert [file.id async for file in way.client.files.list()] == [first.id, second.id]
    assert (await way.client.files.retrieve(first.id)).filename == "a.txt"
    assert (await way.client.files.delete(first.id)).deleted
    with pytest.raises(NotFoundError, match="No such File object"):
        await way.client.files.retrieve(first.id)
    assert [file.id async for file in way.client.files.list()] == [second.id]


# Errors.


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_beyond_the_window_is_context_length_exceeded(how: str, stream: bool) -> None:
    async with reached(how, SimulatorConfig(window=100)) as way:
        with pytest.raises(BadRequestError) as refused:
            await way.client.chat.completions.create(**chat(user("word " * 200)), stream=stream)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "messages"
        assert "maximum context length is 100 tokens" in refused.value.message
        assert refused.value.request_id == f"req_{1:032x}"


async def test_a_wrong_key_is_an_authentication_error(how: str) -> None:
    async with reached(how, SimulatorConfig(api_key="sk-right"), api_key="sk-wrong") as way:
        for call in (asked(way.client, HELLO), streamed(way.client, HELLO), way.client.models.list()):
            with pytest.raises(AuthenticationError) as refused:
                await call
            assert refused.value.code == "invalid_api_key"
        right = way.client.with_options(api_key="sk-right")
        assert (await asked(right, HELLO)).choices


async def test_an_unknown_model_is_not_found(how: str) -> None:
    async with reached(how, SimulatorConfig(any_model=False)) as way:
        with pytest.raises(NotFoundError) as refused:
            await asked(way.client, chat(user("hi"), model="gpt-none"))
        assert refused.value.code == "model_not_found"
        with pytest.raises(NotFoundError, match="gpt-none"):
            await way.client.models.retrieve("gpt-none")


async def test_an_unknown_path_is_the_upstreams_404(way: Way) -> None:
    with pytest.raises(NotFoundError) as refused:
        await way.client.post("/no/such/place", body={"a": 1}, cast_to=object)
    assert refused.value.code == "unknown_url"
    assert "POST /v1/no/such/place" in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_rate_limit_says_when_to_come_back(way: Way, stream: bool) -> None:
    way.upstream.fail_next(Fault.RATE_LIMITED)
    with pytest.raises(RateLimitError) as refused:
        await way.client.chat.completions.create(**HELLO, stream=stream)
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.type == "requests"
    headers = refused.value.response.headers
    assert headers["retry-after"] == "1"
    assert headers["x-ratelimit-limit-requests"] == "60"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "1s"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_error_is_an_internal_server_error(way: Way, stream: bool) -> None:
    way.upstream.fail_next(Fault.SERVER_ERROR)
    with pytest.raises(InternalServerError) as refused:
        await way.client.chat.completions.create(**HELLO, stream=stream)
    assert (refused.value.status_code, refused.value.type) == (500, "server_error")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (403, PermissionDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (418, APIStatusError),
        (422, UnprocessableEntityError),
        (429, RateLimitError),
        (500, InternalServerError),
        (502, InternalServerError),
        (503, InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_status_has_its_exception(
    way: Way, status: int, kind: type[APIStatusError], stream: bool
) -> None:
    error = {"message": "No.", "type": "refusal", "param": "mood", "code": "not_today"}
    headers = (("content-type", "application/json"), ("x-request-id", "req_7"))
    way.upstream.answer_next(Answer(status, headers, (orjson.dumps({"error": error}),)))
    with pytest.raises(APIStatusError) as refused:
        await way.client.chat.completions.create(**HELLO, stream=stream)
    assert type(refused.value) is kind
    assert refused.value.status_code == status
    assert refused.value.body == error
    assert refused.value.request_id == "req_7"
    assert len(way.upstream.requests) == 1


async def test_an_error_that_is_not_json_is_shown_as_it_is(way: Way) -> None:
    page = Answer(503, (("content-type", "text/html"),), (b"<h1>Back soon</h1>",))
    way.upstream.answer_next(page, times=2)
    for call in (asked(way.client, HELLO), streamed(way.client, HELLO)):
        with pytest.raises(InternalServerError, match="<h1>Back soon</h1>"):
            await call


async def test_an_error_in_the_middle_of_a_stream_is_raised(way: Way) -> None:
    error = {"message": "Overheated.", "type": "server_error", "param": None, "code": "hot"}
    pieces = (delta("half"), b"data: " + orjson.dumps({"error": error}) + b"\n\n", DONE)
    way.upstream.answer_next(Answer(200, (EVENT_STREAM,), pieces, Framing.CHUNKED))
    heard: list[ChatCompletionChunk] = []
    with pytest.raises(APIError, match="Overheated"):
        await streamed(way.client, HELLO, heard)
    assert said(heard) == "half"


# Retries and timeouts.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [Fault.RATE_LIMITED, Fault.SERVER_ERROR])
async def test_the_sdk_tries_again_after_one_failure(how: str, fault: Fault, stream: bool) -> None:
    async with reached(how, SimulatorConfig(retry_after=0.01), max_retries=2) as way:
        way.upstream.fail_next(fault)
        if stream:
            assert said(await streamed(way.client, HELLO)) == HELLO["messages"][0]["content"]
        else:
            assert (await asked(way.client, HELLO)).choices[0].finish_reason == "stop"
        assert [r.header("x-stainless-retry-count") for r in way.upstream.requests] == ["0", "1"]


async def test_the_sdk_gives_up_after_its_own_number_of_tries(how: str) -> None:
    async with reached(how, SimulatorConfig(retry_after=0.01), max_retries=2) as way:
        way.upstream.fail_next(Fault.RATE_LIMITED, times=10)
        with pytest.raises(RateLimitError):
            await asked(way.client, HELLO)
        assert way.upstream.arrived == 3


@pytest.mark.parametrize(("wish", "tries"), [("true", 2), ("false", 1)])
async def test_the_upstreams_word_on_retrying_is_heard(how: str, wish: str, tries: int) -> None:
    async with reached(how, max_retries=1) as way:
        headers = (("x-should-retry", wish), ("retry-after-ms", "5"))
        way.upstream.answer_next(Answer(418 if wish == "true" else 503, headers), times=2)
        with pytest.raises(APIStatusError) as refused:
            await asked(way.client, HELLO)
        assert refused.value.response.headers["x-should-retry"] == wish
        assert refused.value.response.headers["retry-after-ms"] == "5"
        assert way.upstream.arrived == tries


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_has_waited_enough_gets_a_timeout_and_the_upstreams_work_ends(
    way: Way, stream: bool
) -> None:
    way.upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
    with pytest.raises(APITimeoutError):
        await way.client.chat.completions.create(**HELLO, stream=stream, timeout=1.0)
    await way.upstream.wait_until(lambda: way.upstream.cancelled == 1)
    assert way.upstream.active == 0
    assert (await asked(way.client, HELLO)).choices


# Below the SDK's surface.


async def test_raw_responses_show_the_upstreams_headers(way: Way) -> None:
    raw = await way.client.chat.completions.with_raw_response.create(**HELLO)
    assert raw.headers["x-request-id"] == raw.request_id == f"req_{1:032x}"
    assert raw.headers["openai-version"] == "2020-10-01"
    assert raw.headers["content-length"] == str(len(raw.content))
    assert raw.http_response.reason_phrase == "OK"
    assert raw.parse().choices[0].message.content == HELLO["messages"][0]["content"]


async def test_a_raw_streaming_response_shows_the_lines(way: Way) -> None:
    async with way.client.chat.completions.with_streaming_response.create(**HELLO, stream=True) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        lines = [line async for line in response.iter_lines()]
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: ") or line == "" for line in lines)


async def test_extra_headers_query_and_body_reach_the_upstream(how: str) -> None:
    async with reached(how, SimulatorConfig(refuses_unknown_parameters=False)) as way:
        await asked(
            way.client,
            HELLO,
            extra_headers={"X-Mine": "as is, please", "OpenAI-Beta": "assistants=v2"},
            extra_query={"debug": "a b&c=ü", "tags": ["x", "y/z"]},
            extra_body={"x_more": {"deep": [1, 2.50, None]}},
        )
        seen = way.upstream.requests[-1]
        assert seen.header("x-mine") == "as is, please"
        assert seen.header("openai-beta") == "assistants=v2"
        assert seen.path.startswith("/v1/chat/completions?debug=a")
        assert httpx.QueryParams(seen.path.partition("?")[2]).multi_items() == [
            ("debug", "a b&c=ü"),
            ("tags[]", "x"),
            ("tags[]", "y/z"),
        ]
        assert seen.parsed["x_more"] == {"deep": [1, 2.5, None]}


async def test_an_azure_client_brings_its_version_and_its_own_kind_of_key(how: str) -> None:
    config = SimulatorConfig(api_key="azure-key")
    options: dict[str, Any] = {
        "default_query": {"api-version": "2024-10-21"},
        "default_headers": {"api-key": "azure-key", "Authorization": ""},
    }
    async with reached(how, config, **options) as way:
        assert said(await streamed(way.client, HELLO)) == HELLO["messages"][0]["content"]
        assert [model.id async for model in way.client.models.list()]
        assert [request.path for request in way.upstream.requests] == [
            "/v1/chat/completions?api-version=2024-10-21",
            "/v1/models?api-version=2024-10-21",
        ]


async def test_organisation_and_project_reach_the_upstream(how: str) -> None:
    async with reached(how, organization="org-1", project="proj-1") as way:
        await asked(way.client, HELLO)
        seen = way.upstream.requests[-1]
        assert seen.header("openai-organization") == "org-1"
        assert seen.header("openai-project") == "proj-1"
        assert seen.header("authorization") == "Bearer sk-test"


async def test_the_blocking_client_works_as_well(way: Way) -> None:
    def talk() -> tuple[str | None, str, bytes]:
        with OpenAI(base_url=way.base_url, api_key="sk-test", max_retries=0, timeout=PATIENCE) as client:
            answer = client.chat.completions.create(**HELLO)
            with client.chat.completions.create(**HELLO, stream=True) as stream:
                heard = [chunk.choices[0].delta.content or "" for chunk in stream]
            stored = client.files.create(file=("a.txt", b"some bytes"), purpose="batch")
            return (
                answer.choices[0].message.content,
                "".join(heard),
                client.files.content(stored.id).content,
            )

    text = HELLO["messages"][0]["content"]
    assert await asyncio.to_thread(talk) == (text, text, b"some bytes")


# Side by side: what cannot be said of one way alone.

CONVERSATIONS = [
    HELLO,
    chat(user("hello 世界 🦊 there"), n=2),
    chat(user("call:look and call:find"), tools=[tool("look"), tool("find")]),
    chat(user("with usage"), stream_options={"include_usage": True}),
    chat(user("length"), max_tokens=1),
]


@pytest.mark.parametrize("body", CONVERSATIONS)
async def test_the_chunks_are_the_same(body: dict[str, Any]) -> None:
    async with reached("direct") as direct, reached("through") as through:
        expected = [chunk.model_dump() for chunk in await streamed(direct.client, body)]
        assert [chunk.model_dump() for chunk in await streamed(through.client, body)] == expected


async def test_the_answers_are_the_same_byte_for_byte() -> None:
    async with reached("direct") as direct, reached("through") as through:
        for body in CONVERSATIONS[:3]:
            raw = [
                await way.client.chat.completions.with_raw_response.create(**body)
                for way in (direct, through)
            ]
            assert raw[0].content == raw[1].content
            assert _headers(raw[0].http_response) == _headers(raw[1].http_response)


@pytest.mark.parametrize("compress", [False, True])
async def test_the_headers_of_every_kind_of_answer_are_the_same(compress: bool) -> None:
    config = SimulatorConfig(compress=compress, any_model=False)
    async with reached("direct", config) as direct, reached("through", config) as through:
        seen = [[_headers(answer) async for answer in _answers(way.client)] for way in (direct, through)]
    assert len(seen[0]) == 6
    assert seen[0] == seen[1]


async def _answers(client: AsyncOpenAI) -> AsyncIterator[httpx.Response]:
    chats, files = client.chat.completions.with_raw_response, client.files.with_raw_response
    yield (await chats.create(**HELLO)).http_response
    yield (await client.models.with_raw_response.list()).http_response
    embeddings = client.embeddings.with_raw_response
    yield (await embeddings.create(model="text-embedding-3-small", input="x")).http_response
    yield (await files.create(file=("a", b"a" * 9000), purpose="batch")).http_response
    yield (await files.content(f"file-{1:024d}")).http_response
    with pytest.raises(NotFoundError) as refused:
        await chats.create(**chat(user("hi"), model="nobody"))
    yield refused.value.response


@pytest.mark.parametrize("ask", [False, True])
async def test_the_headers_of_a_stream_are_the_same(ask: bool) -> None:
    body = {**HELLO, "stream": True, "stream_options": {"include_usage": ask}}
    seen = []
    for how in ("direct", "through"):
        async with (
            reached(how) as way,
            way.client.chat.completions.with_streaming_response.create(**body) as response,
        ):
            await response.read()
            seen.append(_headers(response.http_response))
    assert seen[0] == seen[1]


def _headers(response: httpx.Response) -> list[tuple[str, str]]:
    """Without those that Tailfold adds under its own name."""
    return sorted(
        pair
        for pair in response.headers.multi_items()
        if not pair[0].startswith(("x-tailfold-", "x-conversation-"))
    )


async def test_the_upstream_is_told_the_same() -> None:
    async with reached("direct") as direct, reached("through") as through:
        for way in (direct, through):
            await asked(way.client, HELLO)
            await streamed(way.client, HELLO, stream_options={"include_usage": True})
            await way.client.models.list()
            await way.client.embeddings.create(model="text-embedding-3-small", input="x")
        for expected, found in zip(direct.upstream.requests, through.upstream.requests, strict=True):
            assert (found.method, found.path, found.body) == (expected.method, expected.path, expected.body)
            assert _told(found.headers) == _told(expected.headers)


def _told(headers: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    of_the_hop = (b"host", b"connection", b"content-length")
    return [(name.lower(), value) for name, value in headers if name.lower() not in of_the_hop]
