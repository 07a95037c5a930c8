from __future__ import annotations

import pytest

from proxy.simulator import Answer, Ending, Framing, Pause
from proxy.simulator.wire import script


def test_a_whole_answer_is_one_write() -> None:
    (sent,) = script(Answer(200, (("a", "1"), ("A", "2")), (b"hi",)))
    assert sent == b"HTTP/1.1 200 OK\r\na: 1\r\nA: 2\r\ncontent-length: 2\r\n\r\nhi"


def test_chunks_are_framed_one_by_one_and_trailers_follow() -> None:
    answer = Answer(pieces=(b"one", b"", b"two"), framing=Framing.CHUNKED, pause=0.5, trailers=(("t", "1"),))
    _, *rest = script(answer)
    end = b"0\r\nt: 1\r\n\r\n"
    assert rest == [b"3\r\none\r\n", Pause(0.5), Pause(0.5), b"3\r\ntwo\r\n", end]


def test_what_the_connection_delimits_ends_with_it() -> None:
    head, *rest = script(Answer(pieces=(b"one", b"two"), framing=Framing.CLOSE))
    assert head == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    assert rest == [b"one", Pause(0.0), b"two", Ending.CLOSE]


@pytest.mark.parametrize("status", [101, 204, 304])
def test_some_statuses_have_neither_body_nor_length(status: int) -> None:
    (sent,) = script(Answer(status, pieces=(b"body",)))
    assert isinstance(sent, bytes)
    assert b"content-length" not in sent
    assert sent.endswith(b"\r\n\r\n")


def test_framing_that_the_answer_names_itself_is_left_alone() -> None:
    (sent,) = script(Answer(599, (("Content-Length", "9"),), (b"short",), reason="Odd"))
    assert sent == b"HTTP/1.1 599 Odd\r\nContent-Length: 9\r\n\r\nshort"


def test_an_unknown_status_has_no_reason() -> None:
    (sent,) = script(Answer(599), head_only=True, keep_alive=False)
    assert sent == b"HTTP/1.1 599 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
