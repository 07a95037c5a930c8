"""An error is recognised in whatever form it comes, and an answer that is none is relayed byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import UpstreamDisconnected, UpstreamTimeout
from proxy.metrics import Metrics
from proxy.refusal import Refusal, refusal_in
from proxy.tasks import Tasks
from proxy.upstream import Answer, Outgoing, Timeouts, Upstream
from proxy.upstream.pool import Origin
from tests.raw import RawUpstream, raw_upstream

SAID = {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}
TEXT = orjson.dumps(SAID)
CHUNK = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
EVENTS = b"text/event-stream"
JSON = b"application/json"


def head(status: bytes, media_type: bytes, encoding: bytes | None, length: int | None) -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Type: " + media_type]
    if encoding:
        lines.append(b"Content-Encoding: " + encoding)
    lines.append(b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def whole(
    body: bytes, status: bytes = b"200 OK", media_type: bytes = JSON, encoding: bytes | None = None
) -> list[bytes]:
    return [head(status, media_type, encoding, len(body)) + body]


def in_pieces(
    pieces: Sequence[bytes],
    status: bytes = b"200 OK",
    media_type: bytes = JSON,
    encoding: bytes | None = None,
    *,
    ends: bool = True,
) -> list[bytes]:
    """Each in a chunk, and in a write, of its own."""
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece]
    return [head(status, media_type, encoding, None), *chunks, *([b"0\r\n\r\n"] if ends else [])]


@asynccontextmanager
async def asked(answer: Sequence[bytes], *, close: bool = False, idle: float = 30.0) -> AsyncIterator[Answer]:
    async with raw_upstream() as raw:
        raw.answer, raw.close = answer, close
        async with sent_to(raw, idle) as answered:
            yield answered


@asynccontextmanager
async def sent_to(raw: RawUpstream, idle: float) -> AsyncIterator[Answer]:
    timeouts = Timeouts(connect=5.0, first_byte=30.0, idle=idle)
    upstream = Upstream(raw.base_url, Origin("127.0.0.1", raw.port, None), timeouts, Metrics(), Tasks())
    answer = await upstream.send(Outgoing(b"POST", b"/chat/completions", [], b"{}"))
    try:
        yield answer
    finally:
        answer.close()
        upstream.close()


async def body_of(answer: Answer) -> bytes:
    body = b""
    while piece := await answer.read():
        body += piece
    return body


async def refusal_of(
    pieces: Sequence[bytes], *, looks_inside: bool = True, close: bool = False
) -> Refusal | None:
    """And the answer can be read again, all of it."""
    async with asked(pieces, close=close) as plain:
        body = await body_of(plain)
    async with asked(pieces, close=close) as answer:
        refusal = await refusal_in(answer, looks_inside=looks_inside)
        assert await body_of(answer) == body
        assert answer.complete
        return refusal


# By its status.


@pytest.mark.parametrize("looks_inside", [True, False])
@pytest.mark.parametrize(
    "status", [b"400 Bad Request", b"413 Too Large", b"422 No", b"500 Internal", b"502 Bad Gateway"]
)
async def test_a_refusal_by_its_status_is_read(status: bytes, looks_inside: bool) -> None:
    refusal = await refusal_of(whole(TEXT, status), looks_inside=looks_inside)
    assert refusal == Refusal(int(status[:3]), SAID, TEXT.decode())
    assert refusal.names("nothing of it", "context length")
    assert not refusal.names("role", "template")


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
async def test_a_compressed_refusal_is_read_and_stays_compressed(encoding: bytes) -> None:
    packed = gzip.compress(TEXT) if encoding == b"gzip" else zlib.compress(TEXT)
    half = len(packed) // 2
    for answer in (
        whole(packed, b"400 No", JSON, encoding),
        in_pieces([packed[:half], packed[half:]], b"400 No", JSON, encoding),
    ):
        refusal = await refusal_of(answer)
        assert refusal is not None
        assert refusal.said == SAID


@pytest.mark.parametrize(
    ("body", "said"), [(b"prompt is too long", "prompt is too long"), (b"", ""), (b"\xff{", "\ufffd{")]
)
async def test_a_refusal_that_is_no_json_is_read_as_text(body: bytes, said: str) -> None:
    assert await refusal_of(whole(body, b"400 No", b"text/plain")) == Refusal(400, said, said)


@pytest.mark.parametrize("encoding", [b"gzip", b"made-up"])
async def test_a_refusal_that_cannot_be_decoded_says_nothing(encoding: bytes) -> None:
    assert await refusal_of(whole(TEXT, b"400 No", JSON, encoding)) == Refusal(400, "", "")


@pytest.mark.parametrize("status", [b"201 Made", b"401 No", b"403 No", b"404 No", b"429 Slow", b"503 Later"])
async def test_other_statuses_are_the_clients_business(status: bytes) -> None:
    assert await refusal_of(whole(TEXT, status)) is None


async def test_a_refusal_without_end_is_read_no_further_than_it_takes() -> None:
    # Two such as are looked at, and then as much as the socket holds.
    long = b"x" * (4 * 1024 * 1024)
    refusal = await refusal_of(whole(long, b"500 No", b"text/plain"))
    assert refusal is not None
    assert 64 * 1024 <= len(refusal.text) < len(long)


# In an answer that began well.


@pytest.mark.parametrize(
    "body",
    [
        TEXT,
        b' \r\n {\n    "error" : {"message": "no"}}',
        b'{\n\t\t\t\t\t\t"error": "no"}',
        orjson.dumps(SAID, option=orjson.OPT_INDENT_2),
        b"{" + b" " * 40 + b'"error": {"message": "no"}}',
        b'{"id": "x", "choices": [], "error": {"message": "no"}}',
        b'{"object": "error", "message": "no", "code": 400}',
    ],
)
@pytest.mark.parametrize(
    "media_type", [JSON, b"application/json; charset=utf-8", b"Application/Problem+JSON"]
)
async def test_a_200_that_is_an_error_is_a_refusal(body: bytes, media_type: bytes) -> None:
    refusal = await refusal_of(whole(body, media_type=media_type))
    assert refusal == Refusal(None, orjson.loads(body), body.decode())


@pytest.mark.parametrize(
    "events",
    [
        b"data: %b\n\n" % TEXT,
        b"data:%b\n\n" % TEXT,
        b"data: %b\r\n\r\n" % TEXT,
        b"data: %b\r\r" % TEXT,
        b"data: %b" % TEXT,
        b"event: error\ndata: %b\n\n" % orjson.dumps(SAID["error"]),
        b"error: %b\n\n" % orjson.dumps(SAID["error"]),
        b": wait\n\n: and wait\n\ndata: %b\n\n" % TEXT,
        b": wait\r\n\r\n: and wait\r\n\r\ndata: %b\r\n\r\ndata: [DONE]\r\n\r\n" % TEXT,
        b": wait\ndata: %b\n\n" % TEXT,
        b"\n\n\ndata: %b\n\n" % TEXT,
    ],
)
async def test_a_stream_that_begins_with_an_error_is_a_refusal(events: bytes) -> None:
    for answer in (
        whole(events, media_type=EVENTS),
        in_pieces([events[at : at + 1] for at in range(len(events))], media_type=EVENTS),
        [head(b"200 OK", EVENTS, b"gzip", len(gzip.compress(events))) + gzip.compress(events)],
    ):
        refusal = await refusal_of(answer)
        assert refusal is not None
        assert refusal.status is None
        assert refusal.said == SAID
        assert refusal.names("maximum context length")


@pytest.mark.parametrize("step", [1, 3, 7])
async def test_an_error_in_pieces_is_one(step: int) -> None:
    pieces = [TEXT[at : at + step] for at in range(0, len(TEXT), step)]
    assert await refusal_of(in_pieces(pieces)) == Refusal(None, SAID, TEXT.decode())


async def test_a_short_request_is_not_held_up_to_be_looked_into() -> None:
    for answer in (whole(TEXT), whole(b"data: %b\n\n" % TEXT, media_type=EVENTS)):
        assert await refusal_of(answer, looks_inside=False) is None


# Answers that are none.

bodies = st.sampled_from(
    [
        b'{"id":"chatcmpl-1","choices":[{"message":{"content":"{\\"error\\"}"}}]}',
        b'  {"errors": 0, "choices": []}',
        b'{"error": null, "choices": []}',
        b'{"error": {}, "choices": []}',
        b'["error"]',
        b"{",
        b"",
        b'{"error": {"message": "cut',
        b"\xff\xfe",
        b'{"error": "' + b"x" * 70_000,
    ]
)
streams = st.sampled_from(
    [
        CHUNK + b"data: [DONE]\n\n",
        b": wait\r\n\r\n" + CHUNK.replace(b"\n", b"\r\n") + b"data: %b\r\n\r\n" % TEXT,
        CHUNK + b"data: %b\n\n" % TEXT,
        b"data: [DONE]\n\n",
        b": nothing but comments\n\n" * 5_000,
        b"data: no json\n\n",
        b"data: " + b"x" * 70_000 + b"\n\n",
        b"",
        b'data: {"choices":[],"error":null}\n\n',
    ]
)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_no_error_is_relayed_byte_for_byte(data: st.DataObject) -> None:
    is_stream = data.draw(st.booleans())
    body = data.draw(streams if is_stream else bodies)
    media_type = EVENTS if is_stream else JSON
    encoding = data.draw(st.sampled_from([None, b"gzip", b"made-up"]))
    packed = gzip.compress(body) if encoding == b"gzip" else body
    cuts = sorted(data.draw(st.sets(st.integers(0, len(packed)), max_size=6)))
    pieces = [packed[start:end] for start, end in zip([0, *cuts], [*cuts, len(packed)], strict=True)]

    async def ask() -> None:
        answer = in_pieces(pieces, media_type=media_type, encoding=encoding)
        async with asked(answer) as answered:
            assert await refusal_in(answered, looks_inside=True) is None
            assert await body_of(answered) == packed
        close_delimited = [b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\n" % media_type, *pieces]
        async with asked(close_delimited, close=True) as answered:
            assert answered.close_delimited
            if encoding is None:
                assert await refusal_in(answered, looks_inside=True) is None
                assert await body_of(answered) == body

    asyncio.run(ask())


@pytest.mark.parametrize("media_type", [b"text/plain", b"text/html", b"image/png"])
async def test_what_is_neither_json_nor_a_stream_is_not_looked_into(media_type: bytes) -> None:
    assert await refusal_of(whole(TEXT, media_type=media_type)) is None


@pytest.mark.parametrize(
    ("begins", "media_type", "encoding"),
    [
        (CHUNK, EVENTS, None),
        (CHUNK.replace(b"\n", b"\r\n"), EVENTS, None),
        (CHUNK.replace(b"\n", b"\r"), EVENTS, None),
        (b": wait\n\n" + CHUNK, EVENTS, None),
        (b'{"id"', JSON, None),
        (b" {}", JSON, None),
        (CHUNK, EVENTS, b"made-up"),
        (b"not gzip", JSON, b"gzip"),
    ],
)
async def test_an_answer_is_looked_at_no_longer_than_until_it_has_shown_what_it_is(
    begins: bytes, media_type: bytes, encoding: bytes | None
) -> None:
    """What comes after that the client gets as it comes: here it never does."""
    async with asked(in_pieces([begins], media_type=media_type, encoding=encoding, ends=False)) as answer:
        async with asyncio.timeout(20):
            assert await refusal_in(answer, looks_inside=True) is None
            seen = b""
            while len(seen) < len(begins):
                seen += await answer.read()
        assert seen == begins
        assert not answer.complete


# What breaks off.


async def test_an_answer_that_breaks_off_while_it_is_looked_at_is_broken_off() -> None:
    for pieces in (
        in_pieces([b": wait\n\n"], media_type=EVENTS, ends=False),
        in_pieces([TEXT[:20]], b"400 No", ends=False),
    ):
        async with asked(pieces, close=True) as answer:
            with pytest.raises(UpstreamDisconnected):
                await refusal_in(answer, looks_inside=True)


async def test_an_answer_that_falls_silent_while_it_is_looked_at_has_the_usual_time() -> None:
    async with asked(in_pieces([b": wait\n\n"], media_type=EVENTS, ends=False), idle=0.05) as answer:
        with pytest.raises(UpstreamTimeout):
            await refusal_in(answer, looks_inside=True)
