from __future__ import annotations

import gzip

import pytest

from proxy.errors import UpstreamProtocolError
from proxy.usage import Usage
from proxy.watching import MAX_COPY, FilteredStream, StreamedAnswer, TextAnswer, Unwatched, WholeAnswer, watch
from tests.raw import raw_upstream, request, wire
from tests.running import running

JSON = b'{"usage":{"prompt_tokens":7}}'
EVENT = b'data: {"choices":[],"usage":{"prompt_tokens":7}}\n\ndata: [DONE]\n\n'


def headers(media_type: bytes, encoding: bytes | None = None) -> list[tuple[bytes, bytes]]:
    return [(b"Content-Type", media_type)] + ([(b"content-encoding", encoding)] if encoding else [])


@pytest.mark.parametrize(
    ("media_type", "hide", "kind"),
    [
        (b"application/json", False, WholeAnswer),
        (b"application/json; charset=utf-8", True, WholeAnswer),
        (b"application/problem+json", False, WholeAnswer),
        (b"text/event-stream", False, StreamedAnswer),
        (b"Text/Event-Stream; charset=utf-8", True, FilteredStream),
        (b"text/html", True, TextAnswer),
        (b"text/plain", False, TextAnswer),
        (b"image/png", False, Unwatched),
        (b"", False, Unwatched),
    ],
)
def test_an_answer_is_watched_as_what_it_says_it_is(media_type: bytes, hide: bool, kind: type) -> None:
    assert type(watch(headers(media_type), hide_usage=hide)) is kind


def test_an_unknown_encoding_is_not_watched() -> None:
    assert type(watch(headers(b"application/json", b"snappy"), hide_usage=False)) is Unwatched


def test_what_is_watched_passes_unchanged() -> None:
    packed = gzip.compress(EVENT)
    for media_type in (b"application/json", b"text/event-stream"):
        watched = watch(headers(media_type, b"gzip"), hide_usage=False)
        assert watched.feed(packed[:9]) + watched.feed(packed[9:]) + watched.flush() == packed


def test_usage_is_read_through_the_compression() -> None:
    for media_type, body in ((b"application/json", JSON), (b"text/event-stream", EVENT)):
        watched = watch(headers(media_type, b"gzip"), hide_usage=False)
        watched.feed(gzip.compress(body))
        assert not watched.cut
        assert watched.usage() == Usage(7, 0)


def test_bytes_that_cannot_be_decoded_pass_all_the_same() -> None:
    watched = watch(headers(b"text/event-stream", b"gzip"), hide_usage=False)
    assert watched.feed(b"not gzip") + watched.feed(b" at all") == b"not gzip at all"
    assert watched.usage() is None
    assert not watched.cut


def test_a_stream_that_must_be_filtered_but_cannot_be_read_is_an_error() -> None:
    with pytest.raises(UpstreamProtocolError):
        watch(headers(b"text/event-stream", b"gzip"), hide_usage=True).feed(b"not gzip at all")


def test_an_answer_too_large_to_be_kept_is_only_passed_on() -> None:
    watched = watch(headers(b"application/json"), hide_usage=False)
    piece = bytes(2**20)
    for _ in range(MAX_COPY // len(piece) + 2):
        assert watched.feed(piece) is piece
    assert watched.usage() is None
    assert not watched.cut


@pytest.mark.parametrize(("body", "whole"), [(JSON, True), (JSON[:-5], False)])
async def test_a_plain_answer_that_only_the_connection_ends_is_whole_if_it_reads_whole(
    body: bytes, whole: bool
) -> None:
    async with raw_upstream() as raw, running(raw.base_url) as proxy, wire(proxy.port) as connection:
        raw.answer, raw.close = [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body], True
        await connection.send(request("POST", "/v1/chat/completions", body=b"{}"))
        received = await connection.reader.readuntil(body)
        if whole:
            received += await connection.reader.readuntil(b"0\r\n\r\n")
        else:
            assert b"0\r\n\r\n" not in received + await connection.closed()


async def test_an_answer_that_cannot_be_filtered_becomes_one_well_framed_error() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    async with raw_upstream() as raw, running(raw.base_url) as proxy, wire(proxy.port) as connection:
        raw.answer = [head + b"Content-Length: 8\r\n\r\nnot gzip"]
        for _ in range(2):  # the second shows that the connection stayed in step
            await connection.send(request("POST", "/v1/chat/completions", body=b'{"stream":true}'))
            answer = await connection.answer()
            assert answer.status == 502
            assert answer.values(b"transfer-encoding") == []
            assert b"upstream_protocol_error" in answer.body
