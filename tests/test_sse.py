from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.sse import MAX_EVENT, ChatStream, EventSplitter
from proxy.usage import Usage

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


def chunk(**fields: object) -> bytes:
    return b"data: " + orjson.dumps({"id": "c", "object": "chat.completion.chunk", **fields}) + b"\n\n"


def delta(text: str) -> bytes:
    return chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}], usage=None)


FINISH = chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=None)
USAGE_CHUNK = chunk(choices=[], usage=USAGE)
DONE = b"data: [DONE]\n\n"


@st.composite
def cut_anywhere(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream with its usage chunk, in any line ending, and the same cut anywhere."""
    texts = draw(st.lists(st.text(), max_size=5))
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    events = [*map(delta, texts), FINISH, USAGE_CHUNK, DONE]
    whole = b"".join(event.replace(b"\n", end) for event in events)
    return whole, draw(cut_anywhere(whole))


def read(stream: ChatStream, cut: list[bytes]) -> bytes:
    return b"".join([stream.feed(piece) for piece in cut]) + stream.flush()


@given(streams())
def test_usage_is_found_wherever_the_stream_is_cut_and_nothing_is_changed(
    case: tuple[bytes, list[bytes]],
) -> None:
    whole, cut = case
    stream = ChatStream(hide_usage=False)
    assert read(stream, cut) == whole
    assert stream.usage == Usage(10, 3)
    assert stream.finished


@given(streams())
def test_only_the_usage_chunk_is_taken_out(case: tuple[bytes, list[bytes]]) -> None:
    whole, cut = case
    stream = ChatStream(hide_usage=True)
    shown = read(stream, cut)
    assert b'"prompt_tokens"' not in shown
    # A CR at a cut may leave its LF behind: an empty line, which means nothing in an event stream.
    assert shown.replace(b"\n", b"").replace(b"\r", b"") == b"".join(
        event
        for event in whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if b"prompt_tok" not in event
    )
    assert stream.usage == Usage(10, 3)


@given(st.binary(max_size=300), st.data())
def test_any_bytes_pass_unchanged(whole: bytes, data: st.DataObject) -> None:
    cut = data.draw(cut_anywhere(whole))
    assert read(ChatStream(hide_usage=False), cut) == whole
    assert read(ChatStream(hide_usage=True), cut) == whole


@pytest.mark.parametrize(
    "event",
    [
        chunk(choices=[], prompt_filter_results=[{"prompt_index": 0}]),
        chunk(choices=[], usage=USAGE, prompt_filter_results=[]),
        chunk(choices=[], usage=None),
        chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=USAGE),
        chunk(usage=USAGE),
        chunk(choices=[], usage=[1]),
        b'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
        b': a comment with "usage":{ in it\n\n',
        b'event: error\ndata: {"error":{"message":"x"}}\n\n',
    ],
)
def test_an_event_that_is_not_exactly_the_usage_chunk_stays(event: bytes) -> None:
    stream = ChatStream(hide_usage=True)
    assert stream.feed(event) + stream.flush() == event


def test_usage_in_a_content_chunk_is_read_and_stays() -> None:
    event = chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}], usage=USAGE)
    stream = ChatStream(hide_usage=True)
    assert stream.feed(event) == event
    assert stream.usage == Usage(10, 3)


def test_the_usual_envelope_does_not_save_the_usage_chunk() -> None:
    event = chunk(
        choices=[], usage=USAGE, created=1, model="m", system_fingerprint="f", service_tier="default"
    )
    assert ChatStream(hide_usage=True).feed(event) == b""


def test_a_usage_chunk_without_a_last_empty_line_is_taken_out_too() -> None:
    stream = ChatStream(hide_usage=True)
    assert stream.feed(USAGE_CHUNK.rstrip()) == b""
    assert stream.flush() == b""
    assert stream.usage == Usage(10, 3)


def test_an_event_passes_as_soon_as_it_is_whole() -> None:
    stream = ChatStream(hide_usage=True)
    event = delta("hello")
    assert stream.feed(event[:-1]) == b""
    assert stream.feed(event[-1:] + b"data") == event


def test_an_endless_event_is_not_held_back_for_ever() -> None:
    stream = ChatStream(hide_usage=True)
    passed = b"".join(stream.feed(b"x" * 1000) for _ in range(200))
    assert len(passed) >= 200_000 - MAX_EVENT - 1000


def test_text_that_speaks_of_done_and_finish_reason_does_not_finish_a_stream() -> None:
    stream = ChatStream(hide_usage=False)
    stream.feed(delta('data: [DONE] and "finish_reason":"stop"'))
    assert not stream.finished


def test_splitting_loses_nothing_and_counts_cr_lf_once() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\ndata: b\r\n\r\ndata") == [b"data: a\r\ndata: b\r\n\r\n"]
    assert splitter.pending == b"data"
