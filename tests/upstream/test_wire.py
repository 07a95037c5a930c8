from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamProtocolError
from proxy.upstream.wire import MAX_HEAD, AnswerReader

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=1\r\n world\r\n0\r\nT: 1\r\n\r\n"
)
SIZED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 11\r\nX: \xe9\r\nX: 2\r\n\r\nhello world"


def reader(*, bodiless: bool = False) -> AnswerReader:
    answers = AnswerReader()
    answers.expect(bodiless=bodiless)
    return answers


@pytest.mark.parametrize("answer", [CHUNKED, SIZED])
@given(data=st.data())
def test_an_answer_is_the_same_wherever_it_is_cut(answer: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(answer)), max_size=8)))
    answers, body = reader(), b""
    for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True):
        if start < end:
            answers.feed(answer[start:end])
            body += answers.take()
    assert answers.complete
    assert answers.keep_alive
    assert body == b"hello world"


def test_headers_keep_their_bytes_order_and_repetition() -> None:
    answers = reader()
    answers.feed(SIZED)
    assert answers.head is not None
    assert answers.head.status == 404
    assert answers.head.reason == b"Not Found"
    assert answers.head.headers == [(b"Content-Length", b"11"), (b"X", b"\xe9"), (b"X", b"2")]


def test_one_connection_carries_answers_of_every_kind_in_turn() -> None:
    answers = AnswerReader()
    for answer, bodiless in [(SIZED, False), (SIZED[:-11], True), (CHUNKED, False), (SIZED, False)]:
        answers.expect(bodiless=bodiless)
        answers.feed(answer)
        assert answers.complete
        assert answers.keep_alive
        assert answers.take() == (b"" if bodiless else b"hello world")


def test_a_body_without_framing_ends_with_the_connection() -> None:
    answers = reader()
    answers.feed(b"HTTP/1.1 200 OK\r\n\r\nsome")
    assert not answers.complete
    assert answers.end_of_connection()
    assert answers.take() == b"some"
    assert not answers.keep_alive


@pytest.mark.parametrize("cut", [b"", b"HTTP/1.1 200 OK\r\n", SIZED[:-1], CHUNKED[:-2], CHUNKED[:-10]])
def test_a_connection_that_ends_too_early_leaves_no_whole_answer(cut: bytes) -> None:
    answers = reader()
    if cut:
        answers.feed(cut)
    assert not answers.end_of_connection()


def test_interim_answers_are_passed_over() -> None:
    answers = reader()
    answers.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
    assert not answers.complete
    answers.feed(SIZED)
    assert answers.head is not None
    assert answers.head.status == 404
    assert (b"Link", b"x") not in answers.head.headers


def test_a_second_answer_that_nobody_asked_for_is_dropped_with_the_connection() -> None:
    answers = reader()
    answers.feed(SIZED + CHUNKED)
    assert answers.head is not None
    assert answers.head.status == 404
    assert answers.take() == b"hello world"
    assert not answers.keep_alive


def test_bytes_on_a_resting_connection_are_an_error() -> None:
    with pytest.raises(UpstreamProtocolError):
        AnswerReader().feed(SIZED)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"a" * (MAX_HEAD + 1),
    ],
)
def test_what_is_not_http_is_told(answer: bytes) -> None:
    with pytest.raises(UpstreamProtocolError):
        reader().feed(answer)
