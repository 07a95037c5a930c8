"""What passes through is what would have passed directly."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.simulator import Simulator
from tests.raw import Message, Pairs, RawUpstream, ask, raw_upstream, request, wire
from tests.running import Running, running

HOP = {b"host", b"connection", b"transfer-encoding", b"content-length", b"keep-alive", b"te", b"trailer"}

shared = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
async def raw() -> AsyncIterator[RawUpstream]:
    async with raw_upstream() as upstream:
        yield upstream


@pytest.fixture
async def through(raw: RawUpstream) -> AsyncIterator[Running]:
    async with running(raw.base_url) as proxy:
        yield proxy


# What people may send.

token = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.!#$%&'*+^`|~", min_size=1, max_size=12)
names = token.filter(
    lambda name: (
        name.lower().encode() not in HOP | {b"expect", b"upgrade", b"content-encoding", b"accept-encoding"}
        and not name.lower().startswith(("x-tailfold", "x-conversation-", "proxy-", "content-type"))
    )
).map(str.encode)
texts = st.lists(
    st.integers(0x21, 0x7E) | st.integers(0x80, 0xFF) | st.sampled_from([0x20, 0x09]), max_size=30
)
header_values = texts.map(bytes).map(lambda value: value.strip(b" \t"))
pairs = st.lists(st.tuples(names, header_values), max_size=8)
large = st.builds(
    lambda seed, size: seed * (size // len(seed)), st.binary(min_size=1), st.integers(70_000, 300_000)
)
bodies = st.binary(max_size=500) | large
path_text = st.text("abcXYZ019-._~!$&'()*+,;=:@", max_size=12) | st.sampled_from(
    ["%20", "%2F", "%zz", "%C3%BC", "%00"]
)
paths = st.lists(path_text.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4).map("/".join)
queries = st.text("abc019=&;+%/?:@!$'()*,~-._[]{}|\\^`\"<>", max_size=20)


@dataclass(frozen=True)
class Case:
    head: bytes
    headers: Pairs
    body: bytes | None
    chunks: int  # 0: with a length
    answer_head: bytes
    answer_headers: Pairs
    answer_body: bytes
    answer_framing: str
    cuts: tuple[float, ...]

    @property
    def bodiless(self) -> bool:
        return self.head.startswith(b"HEAD") or self.answer_head.split(b" ")[1] in (b"204", b"304")

    def request(self) -> bytes:
        headers = [(b"Host", b"example"), *self.headers]
        return _message(self.head, headers, self.body, self.chunks)

    def answer(self) -> list[bytes]:
        chunks = 3 if self.answer_framing == "chunked" else 0
        body = None if self.answer_framing == "close" else self.answer_body
        if self.bodiless:
            headers = [(b"Content-Length", b"%d" % len(self.answer_body)), *self.answer_headers]
            return [_message(self.answer_head, headers, None, 0)]
        whole = _message(self.answer_head, self.answer_headers, body, chunks)
        return _cut(whole + (self.answer_body if body is None else b""), self.cuts)


def _message(start: bytes, headers: Pairs, body: bytes | None, chunks: int) -> bytes:
    lines = [start, *(name + b": " + value for name, value in headers)]
    if body is None:
        return b"\r\n".join(lines) + b"\r\n\r\n"
    if not chunks:
        return b"\r\n".join([*lines, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body
    framed = (
        b"".join(b"%X;ext=1\r\n%b\r\n" % (len(part), part) for part in _split(body, chunks)) + b"0\r\n\r\n"
    )
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + framed


def _split(body: bytes, parts: int) -> list[bytes]:
    size = max(1, -(-len(body) // parts))
    return [body[i : i + size] for i in range(0, len(body), size)]


def _cut(whole: bytes, cuts: tuple[float, ...]) -> list[bytes]:
    places = sorted({int(cut * len(whole)) for cut in cuts})
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@st.composite
def cases(draw: st.DrawFn, start: st.SearchStrategy[tuple[str, str, bytes | None]]) -> Case:
    method, path, body = draw(start)
    status = draw(st.sampled_from([200, 200, 201, 204, 304, 307, 400, 401, 404, 418, 429, 500, 503, 599]))
    reason = draw(st.sampled_from([b"OK", b"", b"Whatever It Is", b"caf\xe9"]))
    return Case(
        head=f"{method} {path} HTTP/1.1".encode(),
        headers=draw(pairs),
        body=body,
        chunks=draw(st.integers(0, 4)),
        answer_head=b"HTTP/1.1 %d %b" % (status, reason),
        answer_headers=draw(pairs),
        answer_body=draw(bodies),
        answer_framing=draw(st.sampled_from(["length", "chunked", "close"])),
        cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=5))),
    )


any_request = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]),
    st.builds(lambda path, query: f"/v1/{path}{'?' + query if query else ''}", paths, queries),
    st.none() | bodies,
)
chat_request = st.tuples(
    st.just("POST"),
    st.builds(lambda query: f"/v1/chat/completions{'?' + query if query else ''}", queries),
    bodies
    | st.sampled_from(
        [b'{"model":"gpt-4o"}', b"{}", b'{"stream":true,"stream_options":{"include_usage":true}}']
    ),
)


async def exchange(port: int, raw: RawUpstream, case: Case) -> tuple[Message, Message]:
    """What the upstream and the client see of a case."""
    raw.requests.clear()
    raw.answer, raw.close = case.answer(), case.answer_framing == "close" and not case.bodiless
    answer = await ask(port, *_cut(case.request(), case.cuts), bodiless=case.bodiless)
    return raw.requests[-1], answer


def end_to_end(message: Message, *, framing: bool) -> tuple[bytes, Pairs, bytes, bool]:
    dropped = HOP if framing else HOP - {b"content-length"}
    headers = [
        (name, value)
        for name, value in message.headers
        if name.lower() not in dropped
        and not name.startswith((b"X-Tailfold-", b"X-Conversation-"))  # ours, added to chat answers
    ]
    return message.start, headers, message.body, message.whole


async def same_both_ways(case: Case, raw: RawUpstream, through: Running) -> None:
    direct = await exchange(raw.port, raw, case)
    proxied = await exchange(through.port, raw, case)
    assert end_to_end(proxied[0], framing=True) == end_to_end(direct[0], framing=True)
    assert end_to_end(proxied[1], framing=not case.bodiless) == end_to_end(
        direct[1], framing=not case.bodiless
    )


@shared
@given(case=cases(any_request))
async def test_any_request_and_any_answer_pass_byte_for_byte(
    case: Case, raw: RawUpstream, through: Running
) -> None:
    await same_both_ways(case, raw, through)


@shared
@given(case=cases(chat_request))
async def test_a_chat_request_passes_byte_for_byte_whatever_is_in_it(
    case: Case, raw: RawUpstream, through: Running
) -> None:
    await same_both_ways(case, raw, through)


async def test_a_head_answer_keeps_its_length_and_has_no_body(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: x\r\n\r\n"]
    async with wire(through.port) as connection:
        for _ in range(2):  # the second shows that both connections stayed in step
            await connection.send(request("HEAD", "/v1/files/1"))
            answer = await connection.answer(bodiless=True)
            assert answer.values(b"content-length") == [b"1234"]
            assert answer.values(b"etag") == [b"x"]


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_that_has_no_body_gets_none(
    raw: RawUpstream, through: Running, status: bytes
) -> None:
    raw.answer = [b"HTTP/1.1 " + status + b"\r\nETag: x\r\n\r\n"]
    async with wire(through.port) as connection:
        for _ in range(2):
            await connection.send(request("DELETE", "/v1/files/1"))
            answer = await connection.answer()
            assert answer.start == b"HTTP/1.1 " + status
            assert answer.headers == [(b"ETag", b"x")]


async def test_nothing_is_added_to_an_answer_on_another_path(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    answer = await ask(through.port, request())
    assert (answer.start, answer.headers, answer.body) == (
        b"HTTP/1.1 200 OK",
        [(b"Content-Length", b"2")],
        b"hi",
    )


async def test_trailers_end_here_without_harm(raw: RawUpstream, through: Running) -> None:
    chunks = b"2\r\nhi\r\n0\r\nX-Checksum: 1\r\n\r\n"
    raw.answer = [b"HTTP/1.1 200 OK\r\nTrailer: X-Checksum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks]
    async with wire(through.port) as connection:
        for _ in range(2):
            await connection.send(request())
            answer = await connection.answer()
            assert (answer.body, answer.values(b"trailer")) == (b"hi", [])
    assert raw.connections == 1


async def test_an_interim_answer_is_not_taken_for_the_answer(raw: RawUpstream, through: Running) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    raw.answer = [interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    answer = await ask(through.port, request())
    assert (answer.status, answer.body, answer.values(b"link")) == (200, b"hi", [])


async def test_expect_is_answered_here_and_not_forwarded(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]
    async with wire(through.port) as connection:
        await connection.send(
            b"PUT /v1/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send(b"abc")
        assert (await connection.answer()).status == 200
    assert raw.requests[0].body == b"abc"
    assert raw.requests[0].values(b"expect") == []


async def test_a_client_of_http_1_0_gets_its_body_until_the_end(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"]
    async with wire(through.port) as connection:
        await connection.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        answer = await connection.closed()
    assert answer.endswith(b"\r\n\r\nhi")
    assert b"chunked" not in answer


async def test_a_client_that_wants_to_close_is_closed(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    async with wire(through.port) as connection:
        await connection.send(request(headers=[("Connection", "close")]))
        assert (await connection.answer()).values(b"connection") == [b"close"]
        assert await connection.closed() == b""
    assert raw.requests[0].values(b"connection") == []


async def test_pipelined_requests_are_answered_in_order(raw: RawUpstream, through: Running) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    async with wire(through.port) as connection:
        await connection.send(request(path="/v1/a") + request(path="/v1/b") + request(path="/v1/c"))
        assert [(await connection.answer()).body for _ in range(3)] == [b"hi"] * 3
    assert [message.start.split(b" ")[1] for message in raw.requests] == [b"/v1/a", b"/v1/b", b"/v1/c"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_compressed_request_stays_compressed_and_labelled(
    raw: RawUpstream, through: Running, path: str
) -> None:
    raw.answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]
    packed = gzip.compress(b'{"model":"gpt-4o","stream":true}')
    headers = [("Content-Encoding", "gzip"), ("Content-Type", "application/json")]
    await ask(through.port, request("POST", path, headers, packed))
    assert raw.requests[0].body == packed
    assert raw.requests[0].values(b"content-encoding") == [b"gzip"]


async def test_a_compressed_answer_stays_compressed_and_labelled(raw: RawUpstream, through: Running) -> None:
    packed = gzip.compress(b'{"usage":{"prompt_tokens":7}}')
    labels = b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
    raw.answer = [b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n" % (labels, len(packed)) + packed]
    answer = await ask(through.port, request("POST", "/v1/chat/completions", body=b'{"model":"gpt-4o"}'))
    assert answer.body == packed
    assert answer.values(b"content-encoding") == [b"gzip"]
    assert through.tokens("uncached") == 7


async def test_an_upload_reaches_the_upstream_while_the_client_is_still_sending(
    upstream: Simulator, tailfold: Running
) -> None:
    async with wire(tailfold.port) as connection:
        await connection.send(
            b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n", b"x" * 999_999
        )
        await upstream.wait_for_request(1)  # half of the body is still to come
        await connection.send(b"x" * 1_000_001)
        answer = await connection.answer()
    assert orjson.loads(answer.body)["body_length"] == 2_000_000


async def test_an_answer_that_comes_before_the_body_is_sent_reaches_the_client() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with running(url) as proxy, wire(proxy.port) as connection:
        await connection.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nbegin")
        answer = await connection.answer()
    assert (answer.status, answer.body) == (413, b"much")
    server.close()


async def test_redirects_are_not_followed(raw: RawUpstream, through: Running) -> None:
    raw.answer = [
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n"
    ]
    answer = await ask(through.port, request())
    assert (answer.status, answer.values(b"location")) == (307, [b"http://evil.example/"])
    assert len(raw.requests) == 1
