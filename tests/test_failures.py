"""When something breaks, the client is told, nothing is left running, and the next request is served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import orjson
import pytest
import trustme
from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError, AsyncOpenAI, RateLimitError
from openai.types.chat import ChatCompletionChunk

from proxy.simulator import Answer, Ending, Fault, Simulator, SimulatorConfig
from tests.running import Running, running
from tests.sdk_support import (
    CHUNKED_STREAM,
    DONE,
    EVENT_STREAM,
    LAST_CHUNK,
    PATIENCE,
    PLAIN_ANSWER,
    ManualUpstream,
    Peer,
    asked,
    delta,
    framed,
    head,
    said,
    sdk,
    streamed,
    whole,
)
from tests.simulator.talk import chat, user

HELLO = chat(user("one two three four five six seven eight"))
TEXT: str = HELLO["messages"][0]["content"]
ASK = {"include_usage": True}

SHORT = 0.5  # for the timeout that a test is about
IMPATIENT = {"first_byte": SHORT, "idle": SHORT}
LONG_ENOUGH = 1.0  # for a request to reach the upstream before its client gives up, even on a busy machine

# What the SDK raises for an answer that breaks: its own error before the body, the transport's within it.
BROKEN = (APIConnectionError, httpx.TransportError)

WAYS = pytest.mark.parametrize(
    "options",
    [{}, {"stream": True}, {"stream": True, "stream_options": ASK}],
    ids=["plain", "streamed", "streamed with usage"],
)


@pytest.fixture
async def upstream() -> AsyncIterator[Simulator]:
    async with simulated() as simulator:
        yield simulator


def simulated(**config: Any) -> Simulator:
    # Loading a tokenizer would hold up everybody in this event loop, and so set off the short timeouts.
    return Simulator(SimulatorConfig(counting="rough", **config))


@asynccontextmanager
async def through(upstream: str, **settings: Any) -> AsyncIterator[tuple[Running, AsyncOpenAI]]:
    async with running(upstream, **settings) as proxy, sdk(proxy.base_url) as client:
        yield proxy, client


@pytest.fixture
async def impatient(upstream: Simulator) -> AsyncIterator[tuple[Running, AsyncOpenAI]]:
    async with through(upstream.base_url, timeouts=IMPATIENT) as both:
        yield both


@pytest.fixture
async def manual() -> AsyncIterator[ManualUpstream]:
    async with ManualUpstream() as upstream:
        yield upstream


@pytest.fixture
async def manually(manual: ManualUpstream) -> AsyncIterator[tuple[Running, AsyncOpenAI]]:
    async with through(manual.base_url) as both:
        yield both


async def talk(client: AsyncOpenAI, heard: list[ChatCompletionChunk] | None = None, **options: Any) -> str:
    """What is answered, streamed or not."""
    if options.pop("stream", False):
        return said(await streamed(client, HELLO, heard, **options))
    return (await asked(client, HELLO, **options)).choices[0].message.content or ""


async def serves(client: AsyncOpenAI) -> None:
    assert await talk(client) == TEXT
    assert await talk(client, stream=True) == TEXT


async def at_rest(proxy: Running) -> None:
    """Until no request is being handled."""
    async with asyncio.timeout(PATIENCE):
        await proxy.app.edge.idle()
    assert proxy.metric("tailfold_in_flight_requests") == 0
    assert proxy.metric("tailfold_in_flight_bytes") == 0


def errors(proxy: Running) -> dict[str, float]:
    """How often each error of ours was counted."""
    lines = proxy.app.metrics.exposition().decode().splitlines()
    counted = [line.partition('code="')[2] for line in lines if line.startswith("tailfold_errors_total{")]
    return {code: float(value) for code, _, value in (line.partition('"} ') for line in counted)}


def resends(proxy: Running) -> float:
    return proxy.metric("tailfold_upstream_resends_total", reason="dead_connection")


@contextmanager
def refused(status: int, code: str) -> Iterator[None]:
    """Our own error, in OpenAI's shape."""
    with pytest.raises(APIStatusError) as caught:
        yield
    assert caught.value.status_code == status
    assert caught.value.response.headers["content-type"].startswith("application/json")
    assert isinstance(caught.value.body, dict)
    message = caught.value.body.pop("message")
    assert caught.value.body == {"type": "tailfold_error", "param": None, "code": code}
    assert message
    assert "sk-test" not in message


# Answers that break off.


@WAYS
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.RESET_MID_CHUNK, "upstream_disconnected"),
        (Fault.TRUNCATED_BODY, "upstream_disconnected"),
        (Fault.HANG_MID_STREAM, "upstream_timeout"),
    ],
)
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_an_answer_that_breaks_off_is_never_taken_for_whole(
    upstream: Simulator, fault: Fault, code: str, options: dict[str, Any], coding: str
) -> None:
    async with through(upstream.base_url, timeouts=timeouts_for(fault)) as (proxy, client):
        upstream.fail_next(fault)
        heard: list[ChatCompletionChunk] = []
        headers = {"x-sim-compress": coding} if coding else {}
        with pytest.raises(BROKEN):
            await talk(client, heard, extra_headers=headers, **options)
        if options:
            assert said(heard).startswith("one")
            assert all(chunk.choices[0].finish_reason is None for chunk in heard)
        await upstream.wait_until(lambda: upstream.active == 0)
        await at_rest(proxy)
        assert errors(proxy) == {code: 1}
        assert upstream.arrived == 1
        await serves(client)


def timeouts_for(fault: Fault) -> dict[str, float]:
    return IMPATIENT if fault in (Fault.HANG_BEFORE_HEADERS, Fault.HANG_MID_STREAM) else {}


@pytest.mark.parametrize("stream_options", [None, ASK], ids=["unasked", "asked"])
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_stream_that_only_the_connections_end_ends_breaks_if_it_did_not_say_that_it_is_done(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, stream_options: Any, coding: str
) -> None:
    upstream.fail_next(Fault.CUT_STREAM_CLOSE_DELIMITED)
    heard: list[ChatCompletionChunk] = []
    headers = {"x-sim-compress": coding} if coding else {}
    with pytest.raises(BROKEN):
        await streamed(client, HELLO, heard, stream_options=stream_options, extra_headers=headers)
    assert said(heard).startswith("one two")
    await at_rest(tailfold)
    assert errors(tailfold) == {"upstream_disconnected": 1}
    await serves(client)


async def test_a_plain_answer_that_only_the_connections_end_ends_is_no_answer_if_it_was_cut(
    upstream: Simulator, client: AsyncOpenAI
) -> None:
    upstream.fail_next(Fault.CUT_STREAM_CLOSE_DELIMITED)
    with pytest.raises((*BROKEN, ValueError)):
        await talk(client)
    await serves(client)


@WAYS
async def test_a_reset_is_not_the_end_of_an_answer_that_only_the_connections_end_ends(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI], options: dict[str, Any]
) -> None:
    proxy, _ = manually
    async with aiohttp.ClientSession() as http:
        asking = asyncio.create_task(
            http.post(f"{proxy.base_url}/chat/completions", json={**HELLO, **options}).__aenter__()
        )
        peer = await manual.accept()
        await peer.request()
        kind = EVENT_STREAM if options else ("content-type", "application/json")
        peer.send(head("200 OK", kind, ("connection", "close")), delta("half"))
        answer = await asking
        assert await answer.content.readexactly(len(delta("half"))) == delta("half")
        await peer.reset()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
        answer.close()
    await at_rest(proxy)
    assert errors(proxy) == {"upstream_disconnected": 1}


@pytest.mark.parametrize(
    "fault", [Fault.RESET_MID_CHUNK, Fault.TRUNCATED_BODY, Fault.CUT_STREAM_CLOSE_DELIMITED]
)
async def test_a_client_of_http_1_0_is_reset_because_the_end_of_the_connection_would_look_whole(
    upstream: Simulator, tailfold: Running, fault: Fault
) -> None:
    upstream.fail_next(fault)
    body = orjson.dumps({**HELLO, "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", tailfold.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConnectionResetError):
            await reader.read()
    writer.close()


@pytest.mark.parametrize(
    "fault", [Fault.RESET_MID_CHUNK, Fault.TRUNCATED_BODY, Fault.HANG_MID_STREAM, Fault.HANG_BEFORE_HEADERS]
)
async def test_other_paths_break_as_visibly(upstream: Simulator, fault: Fault) -> None:
    async with through(upstream.base_url, timeouts=timeouts_for(fault)) as (proxy, client):
        stored = await client.files.create(file=("big.bin", b"x" * 3_000_000), purpose="batch")
        upstream.fail_next(fault)
        with pytest.raises(APIError):
            await client.files.content(stored.id)
        await upstream.wait_until(lambda: upstream.active == 0)
        await at_rest(proxy)
        assert (await client.files.content(stored.id)).content == b"x" * 3_000_000


async def test_a_chunk_that_is_no_chunk_breaks_the_stream(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI
) -> None:
    upstream.perform_next((CHUNKED_STREAM, framed(delta("half")), b"what?\r\n", Ending.HANG))
    heard: list[ChatCompletionChunk] = []
    with pytest.raises((*BROKEN, APIStatusError)):
        await streamed(client, HELLO, heard)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert errors(tailfold) == {"upstream_protocol_error": 1}
    await serves(client)


# Answers that never begin.


@WAYS
async def test_an_upstream_that_does_not_begin_to_answer_is_a_timeout(
    upstream: Simulator, impatient: tuple[Running, AsyncOpenAI], options: dict[str, Any]
) -> None:
    proxy, client = impatient
    upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
    with refused(504, "upstream_timeout"):
        await talk(client, **options)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert (upstream.arrived, upstream.cancelled) == (1, 1)
    assert errors(proxy) == {"upstream_timeout": 1}
    await serves(client)


@WAYS
@pytest.mark.parametrize(
    "sent",
    [
        (b"HTTP/1.1 200 OK\r\ncontent-", Ending.CLOSE),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Ending.CLOSE),
        (Ending.CLOSE,),
        (Ending.RESET,),
    ],
    ids=["in the middle of the head", "after an interim answer", "at once", "by a reset"],
)
async def test_an_upstream_that_leaves_before_it_answers_is_a_bad_gateway_and_is_not_asked_again(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, options: dict[str, Any], sent: Any
) -> None:
    upstream.perform_next(sent)
    with refused(502, "upstream_disconnected"):
        await talk(client, **options)
    assert upstream.arrived == 1
    assert errors(tailfold) == {"upstream_disconnected": 1}
    assert resends(tailfold) == 0
    await serves(client)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"220 smtp.example.org ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"\x16\x03\x01\x00\x05hello",
    ],
    ids=["another protocol", "no length", "endless headers", "two lengths", "tls"],
)
async def test_an_upstream_that_does_not_speak_http_is_a_bad_gateway(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, nonsense: bytes
) -> None:
    upstream.perform_next((nonsense, Ending.HANG))
    with refused(502, "upstream_protocol_error"):
        await talk(client)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert errors(tailfold) == {"upstream_protocol_error": 1}
    await serves(client)


async def test_a_long_answer_has_no_limit_as_long_as_it_goes_on() -> None:
    async with (
        simulated(chunk_delay=0.1) as upstream,
        through(upstream.base_url, timeouts={"first_byte": 1.0, "idle": 1.0}) as (_, client),
    ):
        text = "word" * 12
        assert said(await streamed(client, chat(user(text)))) == text


# More than the sockets on the way can hold.
LARGE = "x" * (48 * 2**20)


@pytest.mark.parametrize("path", ["chat", "files"])
async def test_an_upstream_that_stops_reading_a_request_is_a_timeout(
    manual: ManualUpstream, path: str
) -> None:
    async with through(manual.base_url, timeouts=IMPATIENT) as (proxy, client):
        with refused(504, "upstream_timeout"):
            await send_large(client, path)
        await at_rest(proxy)


@pytest.mark.parametrize("path", ["chat", "files"])
async def test_an_upstream_that_reads_slowly_but_steadily_is_waited_for(
    manual: ManualUpstream, path: str
) -> None:
    async with through(manual.base_url, timeouts={"idle": 1.0}) as (_, client):
        sending = asyncio.create_task(send_large(client, path))
        peer = await manual.accept()
        await peer.receive_head()
        for _ in range(16):  # longer in all than the idle time
            await peer.receive(len(LARGE) // 16)
            await asyncio.sleep(0.1)
        peer.send(head("418 Enough", ("content-length", "0"), ("connection", "close")))
        with pytest.raises(APIStatusError) as answered:
            await sending
        assert answered.value.status_code == 418


async def send_large(client: AsyncOpenAI, path: str) -> None:
    if path == "chat":
        await asked(client, chat(user(LARGE)))
    else:
        await client.files.create(file=("large", LARGE.encode()), purpose="batch")


TOO_MUCH = whole(
    b'{"error":{"message":"Too much.","type":"t","param":null,"code":"too_much"}}',
    ("content-type", "application/json"),
    status="413 Content Too Large",
)


@pytest.mark.parametrize("path", ["chat", "files"])
@pytest.mark.parametrize("then", ["waits", "leaves"])
async def test_a_refusal_that_comes_before_the_request_was_read_reaches_the_client(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI], path: str, then: str
) -> None:
    proxy, client = manually
    sending = asyncio.create_task(send_large(client, path))
    peer = await manual.accept()
    await peer.receive_head()
    peer.send(TOO_MUCH)
    if then == "leaves":
        await peer.close()
    with pytest.raises(APIStatusError) as refusal:
        await sending
    assert (refusal.value.status_code, refusal.value.code) == (413, "too_much")
    await at_rest(proxy)
    assert manual.connections == 1
    assert errors(proxy) == {}


@pytest.mark.parametrize("path", ["chat", "files"])
async def test_a_connection_that_is_still_full_of_a_refused_request_is_not_used_for_the_next(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI], path: str
) -> None:
    """The upstream may never read what is left, and the next request would wait behind it."""
    _, client = manually
    sending = asyncio.create_task(send_large(client, path))
    peer = await manual.accept()
    await peer.receive_head()
    peer.send(TOO_MUCH)
    with pytest.raises(APIStatusError):
        await sending
    asking = asyncio.create_task(talk(client))
    fresh = await manual.accept()
    await fresh.request()
    fresh.send(PLAIN_ANSWER)
    assert await asking == "hand-made"


# Upstreams that cannot be reached.


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can take meanwhile."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: the kernel drops whoever knocks next."""
    with socket.socket() as listening, ExitStack() as callers:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(8):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@WAYS
async def test_an_upstream_that_nobody_listens_at_is_unreachable_until_somebody_does(
    options: dict[str, Any],
) -> None:
    with closed_port() as port:
        async with through(f"http://127.0.0.1:{port}/v1") as (proxy, client):
            with refused(502, "upstream_unreachable"):
                await talk(client, **options)
            with refused(502, "upstream_unreachable"):
                await client.files.create(file=("a", b"a" * 300_000), purpose="batch")
            with refused(502, "upstream_unreachable"):
                await client.models.list()
            assert errors(proxy) == {"upstream_unreachable": 3}


async def test_an_upstream_that_comes_back_is_used_again(
    upstream: Simulator, client: AsyncOpenAI, tailfold: Running
) -> None:
    await serves(client)
    port = upstream.port
    await upstream.__aexit__(None, None, None)
    with refused(502, "upstream_unreachable"):
        await talk(client)
    async with Simulator(SimulatorConfig(counting="rough"), port=port):
        await serves(client)
    assert errors(tailfold) == {"upstream_unreachable": 1}


@WAYS
async def test_a_connection_that_does_not_come_about_is_a_timeout(options: dict[str, Any]) -> None:
    with black_hole() as port:
        async with through(f"http://127.0.0.1:{port}/v1", timeouts={"connect": SHORT}) as (proxy, client):
            with refused(504, "upstream_timeout"):
                await talk(client, **options)
            with refused(504, "upstream_timeout"):
                await client.models.list()
            assert errors(proxy) == {"upstream_timeout": 2}


async def test_a_client_that_leaves_while_the_connection_is_made_is_not_waited_for() -> None:
    with black_hole() as port:
        async with through(f"http://127.0.0.1:{port}/v1", timeouts={"connect": 600}) as (proxy, client):
            with pytest.raises(APITimeoutError):
                await talk(client, timeout=LONG_ENOUGH)
            await at_rest(proxy)
            assert errors(proxy) == {"client_disconnected": 1}


# TLS.


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def certified(authority: trustme.CA, name: str = "127.0.0.1") -> Simulator:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return Simulator(SimulatorConfig(counting="rough"), ssl_context=context)


@WAYS
async def test_a_certificate_that_nobody_trusts_is_refused(
    authority: trustme.CA, options: dict[str, Any]
) -> None:
    async with certified(authority) as upstream, through(upstream.base_url) as (proxy, client):
        with refused(502, "upstream_tls_failed"):
            await talk(client, **options)
        assert upstream.arrived == 0
        assert errors(proxy) == {"upstream_tls_failed": 1}


async def test_a_certificate_of_a_trusted_authority_is_taken(authority: trustme.CA, ca_file: Path) -> None:
    async with (
        certified(authority) as upstream,
        through(upstream.base_url, tls={"ca_file": ca_file}) as (proxy, client),
    ):
        await serves(client)
        content = bytes(range(256)) * 20_000
        stored = await client.files.create(file=("a", content), purpose="batch")
        assert (await client.files.content(stored.id)).content == content
        assert errors(proxy) == {}
        assert upstream.connections_opened == 1


async def test_a_certificate_of_somebody_else_is_refused(authority: trustme.CA, ca_file: Path) -> None:
    async with (
        certified(authority, "other.example.org") as upstream,
        through(upstream.base_url, tls={"ca_file": ca_file}) as (_, client),
    ):
        with refused(502, "upstream_tls_failed"):
            await talk(client)


async def test_any_certificate_is_taken_where_nobody_wants_to_verify_it(authority: trustme.CA) -> None:
    async with (
        certified(authority) as upstream,
        through(upstream.base_url, tls={"verify": False}) as (_, client),
    ):
        await serves(client)


async def test_an_upstream_without_tls_where_there_should_be_some_is_refused(upstream: Simulator) -> None:
    async with through(upstream.base_url.replace("http:", "https:")) as (proxy, client):
        with refused(502, "upstream_tls_failed"):
            await talk(client)
        assert errors(proxy) == {"upstream_tls_failed": 1}


async def test_a_handshake_that_does_not_end_is_a_timeout(manual: ManualUpstream) -> None:
    url = manual.base_url.replace("http:", "https:")
    async with through(url, timeouts={"connect": SHORT}) as (_, client):
        with refused(504, "upstream_timeout"):
            await talk(client)
        await (await manual.accept()).left()


@WAYS
@pytest.mark.parametrize("fault", [Fault.RESET_MID_CHUNK, Fault.TRUNCATED_BODY, Fault.HANG_MID_STREAM])
async def test_an_encrypted_answer_that_breaks_off_is_never_taken_for_whole(
    authority: trustme.CA, ca_file: Path, fault: Fault, options: dict[str, Any]
) -> None:
    async with (
        certified(authority) as upstream,
        through(upstream.base_url, tls={"ca_file": ca_file}, timeouts=timeouts_for(fault)) as (_, client),
    ):
        upstream.fail_next(fault)
        with pytest.raises(BROKEN):
            await talk(client, **options)
        await upstream.wait_until(lambda: upstream.active == 0)
        await serves(client)


# Clients that leave.

HANGS = {
    "before the head": (Ending.HANG,),
    "before the first byte": (CHUNKED_STREAM, Ending.HANG),
    "before the first byte of a known length": (
        head("200 OK", ("content-type", "application/json"), ("content-length", "100")),
        Ending.HANG,
    ),
    "in the middle": (CHUNKED_STREAM, framed(delta("half")), Ending.HANG),
    "in the middle of a chunk": (CHUNKED_STREAM, framed(delta("half")), b"5\r\nda", Ending.HANG),
}


@WAYS
@pytest.mark.parametrize("place", HANGS)
async def test_a_client_that_is_cancelled_ends_the_upstreams_work(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, place: str, options: dict[str, Any]
) -> None:
    upstream.perform_next(HANGS[place])
    asking = asyncio.create_task(talk(client, **options))
    await upstream.wait_until(lambda: len(upstream.requests) == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await upstream.wait_until(lambda: upstream.active == 0)
    assert upstream.cancelled == 1
    await at_rest(tailfold)
    assert errors(tailfold) == {"client_disconnected": 1}
    await serves(client)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["before the head", "before the first byte", "in the middle"])
async def test_a_client_that_loses_patience_ends_the_upstreams_work(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, place: str, stream: bool
) -> None:
    upstream.perform_next(HANGS[place])
    with pytest.raises((APITimeoutError, httpx.ReadTimeout)):
        await talk(client, timeout=LONG_ENOUGH, stream=stream)
    await upstream.wait_until(lambda: upstream.cancelled == 1)
    await at_rest(tailfold)
    assert errors(tailfold) == {"client_disconnected": 1}
    await serves(client)


@pytest.mark.parametrize("stream_options", [None, ASK], ids=["unasked", "asked"])
@pytest.mark.parametrize("heard", [0, 1])
async def test_a_stream_that_is_closed_ends_the_upstreams_work(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, heard: int, stream_options: Any
) -> None:
    upstream.perform_next((CHUNKED_STREAM, *[framed(delta("x"))] * heard, Ending.HANG))
    stream = await client.chat.completions.create(**HELLO, stream=True, stream_options=stream_options)
    for _ in range(heard):
        assert (await anext(stream)).choices[0].delta.content == "x"
    await stream.close()
    await upstream.wait_until(lambda: upstream.active == 0)
    assert upstream.cancelled == 1
    await at_rest(tailfold)
    await serves(client)


async def test_a_stream_that_is_left_while_it_flows_ends_the_upstreams_work() -> None:
    async with (
        simulated(answer_tokens=100_000, chunk_delay=0.001) as upstream,
        through(upstream.base_url) as (proxy, client),
    ):
        body = chat(user("word " * 20_000))
        async with await client.chat.completions.create(**body, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        await upstream.wait_until(lambda: upstream.active == 0)
        assert upstream.cancelled == 1
        await at_rest(proxy)


async def test_a_client_that_leaves_in_the_middle_of_a_download_ends_it(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI
) -> None:
    stored = await client.files.create(file=("big", b"x" * (40 * 2**20)), purpose="batch")
    async with client.files.with_streaming_response.content(stored.id) as response:
        await anext(response.iter_bytes(1000))
    await upstream.wait_until(lambda: upstream.active == 0)
    assert upstream.cancelled == 1
    await at_rest(tailfold)
    await serves(client)


@pytest.mark.parametrize("path", ["chat/completions", "files"])
async def test_a_client_that_leaves_in_the_middle_of_its_request_leaves_nothing_behind(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, path: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", tailfold.port)
    lines = (
        f"POST /v1/{path} HTTP/1.1",
        "host: x",
        "content-length: 1000",
        "expect: 100-continue",
        "",
        "half",
    )
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(PATIENCE):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    if path == "files":
        await upstream.wait_until(lambda: upstream.active == 1)
    writer.close()
    await writer.wait_closed()
    await upstream.wait_until(lambda: upstream.active == 0)
    await at_rest(tailfold)
    assert upstream.requests == []
    assert upstream.cancelled == (1 if path == "files" else 0)
    assert errors(tailfold) == {"client_disconnected": 1}
    await serves(client)


async def test_a_client_that_leaves_while_the_upstream_does_not_read_leaves_nothing_behind(
    manual: ManualUpstream,
) -> None:
    """The proxy may have stopped reading by then, so that nothing but its own clock can tell it."""
    async with through(manual.base_url, timeouts={"idle": 1.0}) as (proxy, client):
        with pytest.raises(APITimeoutError):
            await client.files.create(file=("large", LARGE.encode()), purpose="batch", timeout=SHORT)
        await at_rest(proxy)


async def test_a_crowd_that_leaves_leaves_nothing_behind(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI
) -> None:
    upstream.fail_next(Fault.HANG_BEFORE_HEADERS, times=20)
    upstream.fail_next(Fault.HANG_MID_STREAM, times=20)
    crowd = [asyncio.create_task(talk(client, stream=number % 2 == 0)) for number in range(40)]
    await upstream.wait_until(lambda: len(upstream.requests) == 40)
    for one in crowd:
        one.cancel()
    await asyncio.wait(crowd)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert upstream.cancelled == 40
    await at_rest(tailfold)
    assert errors(tailfold) == {"client_disconnected": 40}
    await serves(client)


# Connections that are kept.


async def test_a_connection_that_the_upstream_closed_between_two_requests_is_not_used(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI
) -> None:
    await serves(client)
    assert upstream.connections_opened == 1
    for _ in range(3):
        upstream.drop_connections()
        await serves(client)
    assert upstream.connections_opened == 4
    assert errors(tailfold) == {}


@WAYS
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_request_that_met_a_dead_connection_is_sent_once_more(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI], options: dict[str, Any], end: str
) -> None:
    proxy, client = manually
    kept = await _used_once(manual, client)
    asking = asyncio.create_task(talk(client, **options))
    first = await kept.request()
    await (kept.close() if end == "close" else kept.reset())
    fresh = await manual.accept()
    assert await fresh.request() == first
    if options:
        fresh.send(CHUNKED_STREAM, framed(delta("hand-made")), framed(DONE), LAST_CHUNK)
    else:
        fresh.send(PLAIN_ANSWER)
    assert await asking == "hand-made"
    assert resends(proxy) == 1
    assert errors(proxy) == {}
    assert manual.connections == 2


async def test_a_request_is_not_sent_a_third_time(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI]
) -> None:
    proxy, client = manually
    peer = await _used_once(manual, client)
    asking = asyncio.create_task(talk(client))
    for _ in range(2):
        await peer.request()
        await peer.close()
        if manual.connections == 1:
            peer = await manual.accept()
    with refused(502, "upstream_disconnected"):
        await asking
    assert manual.connections == 2
    assert resends(proxy) == 1


@WAYS
async def test_a_request_whose_answer_has_begun_is_not_sent_again(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI], options: dict[str, Any]
) -> None:
    proxy, client = manually
    kept = await _used_once(manual, client)
    asking = asyncio.create_task(talk(client, **options))
    await kept.request()
    kept.send(b"H")
    await kept.close()
    with refused(502, "upstream_disconnected"):
        await asking
    assert manual.connections == 1
    assert resends(proxy) == 0


async def test_a_request_that_is_not_answered_in_time_is_not_sent_again(
    upstream: Simulator, impatient: tuple[Running, AsyncOpenAI]
) -> None:
    proxy, client = impatient
    await serves(client)
    upstream.forget_requests()
    upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
    with refused(504, "upstream_timeout"):
        await talk(client)
    assert len(upstream.requests) == 1
    assert resends(proxy) == 0
    await serves(client)


async def test_an_upload_that_has_been_streamed_cannot_be_sent_again(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI]
) -> None:
    proxy, client = manually
    kept = await _used_once(manual, client)
    more = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await more.wait()

    async with aiohttp.ClientSession() as http:
        posting = asyncio.create_task(http.post(f"{proxy.base_url}/files", data=pieces()).__aenter__())
        await kept.receive_head()
        await kept.close()
        answer = await posting
        assert (answer.status, (await answer.json())["error"]["code"]) == (502, "upstream_disconnected")
        more.set()
    assert manual.connections == 1
    assert resends(proxy) == 0


async def test_an_answer_with_more_than_it_promised_does_not_reach_the_next_client(
    manual: ManualUpstream, manually: tuple[Running, AsyncOpenAI]
) -> None:
    _, client = manually
    peer = await _used_once(
        manual, client, PLAIN_ANSWER + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfake"
    )
    await peer.left()
    asking = asyncio.create_task(talk(client))
    fresh = await manual.accept()
    await fresh.request()
    fresh.send(PLAIN_ANSWER)
    assert await asking == "hand-made"


async def _used_once(manual: ManualUpstream, client: AsyncOpenAI, answer: bytes = PLAIN_ANSWER) -> Peer:
    """A connection that the proxy keeps for the next request."""
    asking = asyncio.create_task(talk(client))
    peer = await manual.accept()
    await peer.request()
    peer.send(answer)
    assert await asking == "hand-made"
    return peer


# What is the upstream's business.


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_rate_limit_says_about_coming_back_is_untouched(
    upstream: Simulator, client: AsyncOpenAI, stream: bool
) -> None:
    headers = (
        ("Retry-After", "Fri, 31 Dec 2049 23:59:59 GMT"),
        ("retry-after-ms", "1234.5"),
        ("X-RateLimit-Limit-Requests", "60"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("x-ratelimit-reset-tokens", "again"),
        ("x-request-id", "req_limited"),
        ("x-should-retry", "false"),
        ("content-type", "application/json"),
    )
    body = b'{"error":{"message":"Slow down.","type":"requests","param":null,"code":"rate_limit_exceeded"}}'
    upstream.answer_next(Answer(429, headers, (body,)))
    with pytest.raises(RateLimitError) as limited:
        await client.chat.completions.create(**HELLO, stream=stream)
    response = limited.value.response
    expected = [(name.lower(), value) for name, value in headers]
    assert [pair for pair in response.headers.multi_items() if pair in expected] == expected
    assert response.content == body
    assert limited.value.request_id == "req_limited"
    assert upstream.arrived == 1
    await serves(client)


@pytest.mark.parametrize("stream_options", [None, ASK], ids=["unasked", "asked"])
@pytest.mark.parametrize("fault", [Fault.MALFORMED_SSE, Fault.SLOW_DRIP])
async def test_what_is_odd_but_whole_passes_as_it_is(
    upstream: Simulator, tailfold: Running, client: AsyncOpenAI, fault: Fault, stream_options: Any
) -> None:
    async with aiohttp.ClientSession() as http:
        seen = []
        for base_url in (upstream.base_url, tailfold.base_url):
            body = {**HELLO, "stream": True, "stream_options": stream_options}
            headers = {"x-sim-fault": fault}
            async with http.post(f"{base_url}/chat/completions", json=body, headers=headers) as answer:
                seen.append((answer.status, (await answer.read()).replace(b',"usage":null', b"")))
    assert seen[0] == seen[1]
    assert errors(tailfold) == {}
    await serves(client)


async def test_the_sdk_says_the_same_of_a_malformed_stream_either_way(
    upstream: Simulator, client: AsyncOpenAI
) -> None:
    async with sdk(upstream.base_url) as direct:
        for way in (direct, client):
            upstream.fail_next(Fault.MALFORMED_SSE)
            with pytest.raises(ValueError):
                await streamed(way, HELLO)
    await serves(client)


async def test_a_slow_drip_arrives_whole(upstream: Simulator, client: AsyncOpenAI) -> None:
    upstream.fail_next(Fault.SLOW_DRIP, times=2)
    await serves(client)


# Many at once.


async def test_one_clients_failure_is_not_anothers(upstream: Simulator) -> None:
    faults = [
        Fault.RESET_MID_CHUNK,
        Fault.TRUNCATED_BODY,
        Fault.HANG_MID_STREAM,
        Fault.HANG_BEFORE_HEADERS,
        Fault.DISCONNECT_BEFORE_HEADERS,
        Fault.CUT_STREAM_CLOSE_DELIMITED,
    ]
    patience = {"first_byte": LONG_ENOUGH, "idle": LONG_ENOUGH}
    async with through(upstream.base_url, timeouts=patience) as (proxy, client):
        failing = [
            talk(client, stream=True, extra_headers={"x-sim-fault": fault})
            for fault in faults
            for _ in range(3)
        ]
        results = await asyncio.gather(*failing, *(talk(client) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(result, (*BROKEN, APIStatusError)) for result in results[: len(failing)])
        assert results[len(failing) :] == [TEXT] * 20
        await upstream.wait_until(lambda: upstream.active == 0)
        await at_rest(proxy)
        await serves(client)
