from __future__ import annotations

import pytest

from proxy.headers import first, head_bytes, replaced, to_client, to_upstream, without


def test_hop_by_hop_headers_and_those_that_connection_names_stay_behind() -> None:
    received = [
        (b"Host", b"localhost"),
        (b"Connection", b"keep-alive, X-Secret-Hop"),
        (b"X-Secret-Hop", b"1"),
        (b"TE", b"trailers"),
        (b"Expect", b"100-continue"),
        (b"Content-Length", b"3"),
        (b"X-Kept", b"yes"),
    ]
    assert to_upstream(received) == [(b"X-Kept", b"yes")]


def test_our_own_request_headers_are_not_forwarded() -> None:
    received = [(b"X-Conversation-Id", b"c1"), (b"x-tailfold-mode", b"off"), (b"X-Other", b"x")]
    assert to_upstream(received) == [(b"X-Other", b"x")]


def test_connection_cannot_be_used_to_strip_the_key() -> None:
    received = [(b"Connection", b"Authorization"), (b"Authorization", b"Bearer k")]
    assert (b"Authorization", b"Bearer k") in to_upstream(received)


def test_order_spelling_and_repetition_survive() -> None:
    received = [(b"x-B", b"1"), (b"X-a", b"2"), (b"x-B", b"3"), (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b")]
    assert to_upstream(received) == received
    assert to_client(received) == received


def test_an_answer_keeps_its_content_length() -> None:
    assert to_client([(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]) == [
        (b"Content-Length", b"5")
    ]


def test_a_replaced_header_stands_where_it_stood_and_only_once() -> None:
    headers = [(b"A", b"1"), (b"Accept-Encoding", b"gzip"), (b"B", b"2"), (b"accept-encoding", b"br")]
    assert replaced(headers, b"accept-encoding", b"identity") == [
        (b"A", b"1"),
        (b"Accept-Encoding", b"identity"),
        (b"B", b"2"),
    ]
    assert replaced([], b"accept-encoding", b"identity") == [(b"accept-encoding", b"identity")]


def test_lookups_ignore_case() -> None:
    headers = [(b"Content-Type", b"a"), (b"content-type", b"b")]
    assert first(headers, b"content-type") == b"a"
    assert first(headers, b"etag") is None
    assert without(headers, b"content-type") == []


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"a\nb", b"a\rb"])
def test_a_line_break_inside_a_value_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_bytes(b"GET / HTTP/1.1", [(b"A", value)])
