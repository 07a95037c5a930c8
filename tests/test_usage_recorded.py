"""What an exchange has cost is recorded, however the answer comes; a client sees only what it asked for."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx
import orjson
import pytest
from openai import APIError, AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionChunk
from structlog.testing import capture_logs

from proxy.simulator import Answer, Framing, Simulator, SimulatorConfig
from tests.running import Running, running
from tests.sdk_support import (
    COMPLETION,
    DONE,
    EVENT_STREAM,
    FINISH,
    asked,
    delta,
    event,
    said,
    sdk,
    streamed,
)
from tests.simulator.talk import chat, user

HELLO = chat(user("one two three four five six seven eight"))
TEXT: str = HELLO["messages"][0]["content"]

ASK = {"include_usage": True}
USAGE = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
USAGE_CHUNK = event(choices=[], usage=USAGE)

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": importlib.import_module("brotli").decompress,
    "zstd": importlib.import_module("backports.zstd").decompress,
}
UNSAID: Any = object()  # a request without `stream_options`, which is not the same as null


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer as it came over the wire."""

    status: int
    coding: str
    body: bytes

    @property
    def plain(self) -> bytes:
        return DECODERS[self.coding](self.body)


async def post(http: aiohttp.ClientSession, base_url: str, body: bytes, **headers: str) -> Seen:
    named = {name.replace("_", "-"): value for name, value in headers.items() if value}
    async with http.post(f"{base_url}/chat/completions", data=body, headers=named) as answer:
        return Seen(answer.status, answer.headers.get("content-encoding", ""), await answer.read())


def streaming(options: Any = UNSAID) -> bytes:
    said_of_options = {} if options is UNSAID else {"stream_options": options}
    return orjson.dumps({**HELLO, "stream": True, **said_of_options})


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    *events, done, end = stream.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    return [orjson.loads(data.removeprefix(b"data: ")) for data in events]


def without_nulls(stream: bytes) -> bytes:
    """`"usage":null` in every chunk is what asking brings with it."""
    return stream.replace(b',"usage":null', b"")


def recorded(tailfold: Running) -> tuple[float, float, float]:
    return tailfold.tokens("uncached"), tailfold.tokens("cache_read"), tailfold.tokens("output")


async def cost(upstream: Simulator, body: dict[str, Any]) -> tuple[float, float, float]:
    """What the upstream says that the request costs, asked without anything in between."""
    async with sdk(upstream.base_url) as direct:
        usage = (await asked(direct, body)).usage
    upstream.forget_requests()
    assert usage is not None
    return usage.prompt_tokens, 0, usage.completion_tokens


def event_stream(*pieces: bytes, framing: Framing = Framing.CHUNKED, coding: str = "") -> Answer:
    labels = (EVENT_STREAM, ("content-encoding", coding)) if coding else (EVENT_STREAM,)
    return Answer(200, labels, pieces, framing)


# However it comes.


@pytest.mark.parametrize("coding", DECODERS)
async def test_usage_of_a_plain_answer_is_recorded(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, coding: str
) -> None:
    expected = await cost(upstream, HELLO)
    body = orjson.dumps(HELLO)
    direct = await post(http, upstream.base_url, body, x_sim_compress=coding)
    seen = await post(http, tailfold.base_url, body, x_sim_compress=coding)
    assert seen == direct
    assert seen.coding == coding
    assert recorded(tailfold) == expected


@pytest.mark.parametrize("coding", DECODERS)
async def test_usage_of_a_stream_is_recorded_and_passed_on_where_the_client_asked(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, coding: str
) -> None:
    expected = await cost(upstream, HELLO)
    direct = await post(http, upstream.base_url, streaming(ASK), x_sim_compress=coding)
    seen = await post(http, tailfold.base_url, streaming(ASK), x_sim_compress=coding)
    assert seen == direct
    assert seen.coding == coding
    assert [chunk["usage"] is None for chunk in chunks_of(seen.plain)].count(False) == 1
    assert recorded(tailfold) == expected
    assert upstream.requests[-1].body == streaming(ASK)


@pytest.mark.parametrize(
    "options",
    [
        UNSAID,
        None,
        {},
        {"include_usage": False},
        {"include_usage": None},
        {"include_obfuscation": False},
        {"include_obfuscation": True, "include_usage": False, "more": {"a": [1, "}"]}},
    ],
    ids=["unsaid", "null", "empty", "false", "null inside", "another key", "other keys and false"],
)
@pytest.mark.parametrize("coding", DECODERS)
async def test_usage_of_a_stream_is_recorded_and_kept_back_where_the_client_did_not_ask(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, options: Any, coding: str
) -> None:
    """The upstream is asked not to compress; even one that does all the same is understood."""
    expected = await cost(upstream, HELLO)
    direct = await post(http, upstream.base_url, streaming(options))
    seen = await post(
        http, tailfold.base_url, streaming(options), x_sim_compress=coding, accept_encoding="gzip, br"
    )
    assert (seen.status, seen.coding) == (200, "")
    assert without_nulls(seen.body) == direct.body
    assert all(chunk["choices"] for chunk in chunks_of(seen.body))
    assert recorded(tailfold) == expected

    told = upstream.requests[-1]
    assert told.parsed == {
        **orjson.loads(streaming(options)),
        "stream_options": {**(options if isinstance(options, dict) else {}), **ASK},
    }
    assert told.headers_named("accept-encoding") == ["identity"]


async def test_the_wish_is_put_into_the_clients_bytes_and_the_rest_of_them_stays(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession
) -> None:
    before = b'{ "model":"gpt-4o",\n "messages" :[{"role":"user","content":"\\u0068i \xc3\xa4 }"}], '
    after = b'"stream": true, "seed" : 12345678901234567890 , "temperature":1.0e0'
    assert (await post(http, tailfold.base_url, before + after + b"\n}\n")).status == 200
    assert upstream.requests[-1].body == before + after + b'\n,"stream_options":{"include_usage":true}}\n'
    for given, wished in (
        (b'"stream_options": { "include_usage":false } ,', b'"stream_options": { "include_usage":true } ,'),
        (b'"stream_options":null,', b'"stream_options":{"include_usage":true},'),
    ):
        assert (await post(http, tailfold.base_url, before + given + after + b"}")).status == 200
        assert upstream.requests[-1].body == before + wished + after + b"}"


@pytest.mark.parametrize("coding", ["", "gzip", "br"])
async def test_the_sdk_sees_an_ordinary_stream(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator, coding: str
) -> None:
    expected = await cost(upstream, HELLO)
    headers = {"x-sim-compress": coding} if coding else {}
    unasked = await streamed(client, HELLO, extra_headers=headers)
    assert said(unasked) == TEXT
    assert all(chunk.choices and chunk.usage is None for chunk in unasked)
    asked_for = await streamed(client, HELLO, stream_options=ASK, extra_headers=headers)
    assert said(asked_for) == TEXT
    assert [chunk.usage is not None for chunk in asked_for if not chunk.choices] == [True]
    assert recorded(tailfold) == tuple(2 * tokens for tokens in expected)


async def test_an_upstream_that_compresses_when_asked_is_not_asked_for_a_stream_that_is_read(
    http: aiohttp.ClientSession,
) -> None:
    async with Simulator(SimulatorConfig(compress=True)) as upstream, running(upstream.base_url) as tailfold:
        plain = await post(http, tailfold.base_url, orjson.dumps(HELLO), accept_encoding="gzip")
        assert plain.coding == "gzip"
        told = await post(http, tailfold.base_url, streaming(ASK), accept_encoding="gzip")
        assert told.coding == "gzip"
        untold = await post(http, tailfold.base_url, streaming(), accept_encoding="gzip")
        assert untold.coding == ""
        assert tailfold.tokens("output") == 3 * 8


async def test_cached_tokens_count_as_read_from_the_cache(client: AsyncOpenAI, tailfold: Running) -> None:
    long = chat(user("word " * 1500))
    first = await asked(client, long)
    assert first.usage is not None
    assert recorded(tailfold) == (first.usage.prompt_tokens, 0, first.usage.completion_tokens)
    second = await asked(client, long)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens or 0
    assert cached > 1024
    await streamed(client, long)
    assert recorded(tailfold) == (
        3 * first.usage.prompt_tokens - 2 * cached,
        2 * cached,
        3 * first.usage.completion_tokens,
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_the_log_line_tells_the_cost_and_nothing_of_what_was_said(
    client: AsyncOpenAI, upstream: Simulator, stream: bool
) -> None:
    prompt, _, completion = await cost(upstream, HELLO)
    with capture_logs() as lines:
        if stream:
            await streamed(client, HELLO)
        else:
            await asked(client, HELLO)
    (line,) = lines
    assert line["event"] == "request"
    assert (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"]) == (
        prompt,
        0,
        completion,
    )
    assert (line["model"], line["status"], line.get("stream", False)) == ("gpt-4o", 200, stream)
    assert "three four" not in repr(line)
    assert "sk-test" not in repr(line)


async def test_an_answer_that_does_not_say_what_it_cost_is_counted_as_such(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator
) -> None:
    silent = orjson.dumps({**orjson.loads(COMPLETION), "usage": None})
    upstream.answer_next(Answer(200, (("content-type", "application/json"),), (silent,)))
    assert (await asked(client, HELLO)).choices
    upstream.answer_next(event_stream(delta("hi"), FINISH, DONE))
    assert said(await streamed(client, HELLO)) == "hi"
    assert tailfold.metric("tailfold_usage_missing_total") == 2
    assert recorded(tailfold) == (0, 0, 0)


async def test_a_refused_request_costs_nothing(client: AsyncOpenAI, tailfold: Running) -> None:
    with pytest.raises(BadRequestError):
        await asked(client, {**HELLO, "messages": []})
    with pytest.raises(BadRequestError):
        await streamed(client, {**HELLO, "messages": []})
    assert recorded(tailfold) == (0, 0, 0)
    assert tailfold.metric("tailfold_usage_missing_total") == 0


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("coding", ["", "gzip"])
@pytest.mark.parametrize("options", [UNSAID, ASK], ids=["unasked", "asked"])
async def test_usage_is_found_wherever_the_answer_is_cut(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, size: int, coding: str, options: Any
) -> None:
    whole = delta("hällo 🦊") + FINISH + USAGE_CHUNK + DONE
    sent = gzip.compress(whole) if coding else whole
    pieces = (sent[start : start + size] for start in range(0, len(sent), size))
    upstream.answer_next(event_stream(*pieces, coding=coding))
    seen = await post(http, tailfold.base_url, streaming(options))
    if options is UNSAID:
        assert (seen.coding, seen.body) == ("", delta("hällo 🦊") + FINISH + DONE)
    else:
        assert (seen.coding, seen.body) == (coding, sent)
    assert recorded(tailfold) == (30, 0, 7)


@pytest.mark.parametrize("framing", Framing)
async def test_a_stream_in_any_framing_loses_only_its_usage(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator, framing: Framing
) -> None:
    upstream.answer_next(
        event_stream(delta("hi "), delta("there"), FINISH, USAGE_CHUNK, DONE, framing=framing)
    )
    chunks = await streamed(client, HELLO)
    assert said(chunks) == "hi there"
    assert all(chunk.choices for chunk in chunks)
    assert recorded(tailfold) == (30, 0, 7)


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
async def test_a_plain_answer_in_small_compressed_pieces_is_read(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, coding: str
) -> None:
    packed = {
        "gzip": gzip.compress,
        "br": importlib.import_module("brotli").compress,
        "zstd": importlib.import_module("backports.zstd").compress,
        "deflate": zlib.compress,
    }[coding](COMPLETION)
    labels = (("content-type", "application/json"), ("content-encoding", coding))
    upstream.answer_next(
        Answer(200, labels, tuple(packed[i : i + 5] for i in range(0, len(packed), 5)), Framing.CHUNKED)
    )
    seen = await post(http, tailfold.base_url, orjson.dumps(HELLO))
    assert (seen.coding, seen.body) == (coding, packed)
    assert recorded(tailfold) == (3, 0, 2)


# What is taken out, and what is not.

AZURE_FILTER = event(
    id="", model="", choices=[], prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}]
)
AZURE_USAGE = event(choices=[], usage=USAGE, prompt_filter_results=[])
CLOSING = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=USAGE)


@pytest.mark.parametrize(
    "kept",
    [
        AZURE_FILTER,
        AZURE_USAGE,
        CLOSING,
        event(choices=[], usage=None),
        event(choices=[]),
        event(usage=USAGE),
        event(choices=None, usage=USAGE),
        event(choices=[], usage=[1]),
        event(choices=[], usage=USAGE, error={"message": "late"}),
        b": keep-alive\n\n",
        b"event: ping\ndata: {}\n\n",
        b'data: {"choices":[],"usage":{\n\n',
        delta('"choices":[],"usage":{"prompt_tokens":1}'),
    ],
    ids=[
        "azure's filter results",
        "usage beside azure's own key",
        "usage in the closing chunk",
        "usage null",
        "empty choices alone",
        "no choices",
        "choices null",
        "usage of a wrong type",
        "an error beside usage",
        "a comment",
        "another kind of event",
        "torn json",
        "text that looks like usage",
    ],
)
async def test_what_is_no_usage_chunk_is_passed_on(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, kept: bytes
) -> None:
    upstream.answer_next(event_stream(delta("a"), kept, FINISH, USAGE_CHUNK, DONE))
    seen = await post(http, tailfold.base_url, streaming())
    assert seen.body == delta("a") + kept + FINISH + DONE
    assert recorded(tailfold) == (30, 0, 7)


async def test_usage_in_the_closing_chunk_is_recorded_and_seen(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator
) -> None:
    upstream.answer_next(event_stream(delta("hi"), CLOSING, DONE))
    *_, last = await streamed(client, HELLO)
    assert last.choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.total_tokens == 37
    assert recorded(tailfold) == (30, 0, 7)


async def test_usage_that_grows_from_chunk_to_chunk_is_counted_once(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator
) -> None:
    running_totals = [
        delta("x", usage={**USAGE, "completion_tokens": number, "total_tokens": 30 + number})
        for number in range(7)
    ]
    upstream.answer_next(event_stream(*running_totals, FINISH, USAGE_CHUNK, DONE))
    assert said(await streamed(client, HELLO)) == "x" * 7
    assert recorded(tailfold) == (30, 0, 7)


@pytest.mark.parametrize(
    "extra", ["service_tier", "system_fingerprint", "obfuscation", "provider", "timings"]
)
async def test_the_usual_envelope_does_not_save_a_usage_chunk(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession, extra: str
) -> None:
    upstream.answer_next(event_stream(FINISH, event(choices=[], usage=USAGE, **{extra: "x"}), DONE))
    assert (await post(http, tailfold.base_url, streaming())).body == FINISH + DONE


async def test_a_stream_that_only_claims_to_be_compressed_breaks_where_it_must_be_read(
    client: AsyncOpenAI, upstream: Simulator
) -> None:
    upstream.answer_next(event_stream(delta("half"), FINISH, DONE, coding="gzip"))
    heard: list[ChatCompletionChunk] = []
    with pytest.raises((APIError, httpx.HTTPError)):
        await streamed(client, HELLO, heard)
    assert (await asked(client, HELLO)).choices


async def test_a_stream_that_only_claims_to_be_compressed_passes_where_it_need_not_be_read(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession
) -> None:
    upstream.answer_next(event_stream(delta("all"), FINISH, DONE, coding="gzip"))
    seen = await post(http, tailfold.base_url, streaming(ASK))
    assert seen == Seen(200, "gzip", delta("all") + FINISH + DONE)


async def test_a_compressed_request_is_forwarded_as_it_is(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession
) -> None:
    packed = gzip.compress(streaming())
    seen = await post(
        http, tailfold.base_url, packed, content_encoding="gzip", content_type="application/json"
    )
    assert without_nulls(seen.body) == seen.body
    assert upstream.requests[-1].body == packed


# Where nothing is added.


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ({"mode": "observe"}, {}),
        ({"mode": "off"}, {}),
        ({"usage": {"ask": False}}, {}),
        ({}, {"x_tailfold_mode": "off"}),
        ({}, {"x_tailfold_mode": "observe"}),
        ({"mode": "observe"}, {"x_tailfold_mode": "off"}),
    ],
    ids=["observe", "off", "told not to ask", "off for one", "observe for one", "both"],
)
async def test_nothing_is_added_to_a_request_where_that_is_not_wished(
    upstream: Simulator, http: aiohttp.ClientSession, settings: dict[str, Any], headers: dict[str, str]
) -> None:
    async with running(upstream.base_url, **settings) as tailfold:
        direct = await post(http, upstream.base_url, streaming(), accept_encoding="gzip;q=0.5")
        seen = await post(http, tailfold.base_url, streaming(), accept_encoding="gzip;q=0.5", **headers)
        assert seen == direct
        told = upstream.requests[-1]
        assert told.body == streaming()
        assert told.headers_named("accept-encoding") == ["gzip;q=0.5"]
        assert told.headers_named("x-tailfold-mode") == []
        assert tailfold.metric("tailfold_usage_missing_total") == 1


@pytest.mark.parametrize("settings", [{"mode": "observe"}, {"usage": {"ask": False}}])
async def test_usage_is_recorded_all_the_same_where_the_answer_has_it(
    upstream: Simulator, settings: dict[str, Any]
) -> None:
    expected = await cost(upstream, HELLO)
    async with running(upstream.base_url, **settings) as tailfold, sdk(tailfold.base_url) as client:
        await asked(client, HELLO)
        chunks = await streamed(client, HELLO, stream_options=ASK)
        assert len([chunk for chunk in chunks if not chunk.choices]) == 1
        assert recorded(tailfold) == tuple(2 * tokens for tokens in expected)


async def test_a_request_can_ask_for_more_than_the_setting_says(upstream: Simulator) -> None:
    async with running(upstream.base_url, mode="off") as tailfold, sdk(tailfold.base_url) as client:
        chunks = await streamed(client, HELLO, extra_headers={"X-Tailfold-Mode": "compress"})
        assert all(chunk.choices for chunk in chunks)
        assert tailfold.tokens("output") > 0


# Where the option is refused.


async def test_a_refused_option_is_left_out_once_more_and_from_then_on() -> None:
    async with (
        Simulator(SimulatorConfig(refuses_stream_options=True)) as upstream,
        running(upstream.base_url) as tailfold,
        sdk(tailfold.base_url) as client,
        sdk(upstream.base_url) as direct,
    ):
        expected = [chunk.model_dump() for chunk in await streamed(direct, HELLO)]
        upstream.forget_requests()
        for _ in range(3):
            assert [chunk.model_dump() for chunk in await streamed(client, HELLO)] == expected
        wishes = [request.parsed.pop("stream_options", None) for request in upstream.requests]
        assert wishes == [ASK, None, None, None]
        assert tailfold.metric("tailfold_upstream_resends_total", reason="stream_options") == 1
        assert tailfold.metric("tailfold_usage_missing_total") == 3
        assert tailfold.metric("tailfold_errors_total") == 0
        assert tailfold.metric("tailfold_requests_total", status="200") == 3
        await asked(client, HELLO)
        assert tailfold.tokens("output") > 0


async def test_what_is_sent_once_more_is_the_clients_own_request(http: aiohttp.ClientSession) -> None:
    async with (
        Simulator(SimulatorConfig(refuses_stream_options=True)) as upstream,
        running(upstream.base_url) as tailfold,
    ):
        seen = await post(http, tailfold.base_url, streaming(), accept_encoding="gzip", x_mine="kept")
        assert seen.status == 200
        again = upstream.requests[-1]
        assert again.body == streaming()
        assert (again.header("accept-encoding"), again.header("x-mine")) == ("gzip", "kept")
        assert upstream.arrived == 2


async def test_clients_that_come_at_the_same_time_are_all_served_by_an_upstream_that_refuses() -> None:
    async with (
        Simulator(SimulatorConfig(refuses_stream_options=True)) as upstream,
        running(upstream.base_url) as tailfold,
        sdk(tailfold.base_url) as client,
    ):
        answers = await asyncio.gather(*(streamed(client, HELLO) for _ in range(8)))
        assert [said(chunks) for chunks in answers] == [TEXT] * 8
        await streamed(client, HELLO)
        assert "stream_options" not in upstream.requests[-1].parsed


@pytest.mark.parametrize(
    "refusal",
    [
        Answer(422, (("content-type", "application/json"),), (b'{"detail":"Extra: stream_options"}',)),
        Answer(
            400, (("content-type", "text/plain"),), (b"unknown field ", b"stream_options"), Framing.CHUNKED
        ),
        Answer(400, (), (b"stream_options?",), Framing.CLOSE),
    ],
    ids=["422", "in chunks", "until the connection ends"],
)
async def test_a_refusal_may_have_any_shape(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator, refusal: Answer
) -> None:
    upstream.answer_next(refusal)
    assert said(await streamed(client, HELLO)) == TEXT
    assert len(upstream.requests) == 2
    assert tailfold.metric("tailfold_upstream_resends_total", reason="stream_options") == 1


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate"])
async def test_a_refusal_that_is_compressed_is_understood(coding: str) -> None:
    """As with streams: not every upstream heeds the wish for an answer without compression."""
    async with (
        Simulator(SimulatorConfig(refuses_stream_options=True)) as upstream,
        running(upstream.base_url) as tailfold,
        sdk(tailfold.base_url) as client,
    ):
        assert said(await streamed(client, HELLO, extra_headers={"x-sim-compress": coding})) == TEXT
        assert upstream.arrived == 2


async def test_any_other_refusal_is_the_clients_to_see(
    client: AsyncOpenAI, tailfold: Running, upstream: Simulator
) -> None:
    with pytest.raises(BadRequestError, match="empty array"):
        await streamed(client, {**HELLO, "messages": []})
    assert upstream.arrived == 1
    assert tailfold.metric("tailfold_upstream_resends_total") == 0
    await streamed(client, HELLO)
    assert upstream.requests[-1].parsed["stream_options"] == ASK


async def test_a_long_refusal_reaches_the_client_whole(
    tailfold: Running, upstream: Simulator, http: aiohttp.ClientSession
) -> None:
    long = b"no " * 200_000
    upstream.answer_next(Answer(400, (), (long,)))
    assert (await post(http, tailfold.base_url, streaming())).body == long
    upstream.answer_next(Answer(400, (), (long[:70_000], long[70_000:]), Framing.CHUNKED))
    assert (await post(http, tailfold.base_url, streaming())).body == long
    assert upstream.arrived == 2


async def test_a_client_that_asked_itself_sees_the_refusal() -> None:
    async with (
        Simulator(SimulatorConfig(refuses_stream_options=True)) as upstream,
        running(upstream.base_url) as tailfold,
        sdk(tailfold.base_url) as client,
    ):
        with pytest.raises(BadRequestError, match="stream_options"):
            await streamed(client, HELLO, stream_options=ASK)
        assert upstream.arrived == 1
        assert tailfold.metric("tailfold_upstream_resends_total") == 0


async def test_a_refusal_that_only_quotes_the_option_does_not_end_the_asking(
    client: AsyncOpenAI, upstream: Simulator
) -> None:
    """Servers built on FastAPI quote the whole request in a 422, whatever was wrong with it."""
    quoting = {
        "detail": [{"loc": ["body", "messages"], "msg": "Field required", "input": {"stream_options": ASK}}]
    }
    refusal = Answer(422, (("content-type", "application/json"),), (orjson.dumps(quoting),))
    upstream.answer_next(refusal, times=2)
    with pytest.raises(APIError, match="Field required"):
        await streamed(client, HELLO)
    upstream.forget_requests()
    await streamed(client, HELLO)
    assert [request.parsed.get("stream_options") for request in upstream.requests] == [ASK]
