from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.messages import asking_for_usage, read

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
options = st.none() | st.dictionaries(
    st.sampled_from(["include_usage", "include_obfuscation", 'a"}{']), values
)


@st.composite
def streaming_bodies(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    body = draw(st.dictionaries(st.text(), values, max_size=5)) | {"stream": True}
    if draw(st.booleans()):
        body["stream_options"] = draw(options)
    keys = draw(st.permutations(list(body)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", "\t: ")]))
    text = json.dumps(
        {key: body[key] for key in keys}, separators=separators, ensure_ascii=draw(st.booleans())
    )
    return body, (draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\n "]))).encode(
        "utf-8", "surrogatepass"
    )


@given(streaming_bodies())
def test_the_wish_for_usage_is_put_in_and_nothing_else_changes(case: tuple[dict[str, Any], bytes]) -> None:
    body, raw = case
    chat = read(raw, compressed=False)
    asking = asking_for_usage(chat)
    if not chat.readable or chat.asks_for_usage:  # lone surrogates: forwarded unread
        assert asking is None
    else:
        assert asking is not None
        expected = body | {"stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
        assert json.loads(asking) == expected


@given(streaming_bodies())
def test_outside_the_splice_the_bytes_are_the_clients_own(case: tuple[dict[str, Any], bytes]) -> None:
    body, raw = case
    asking = asking_for_usage(read(raw, compressed=False))
    if asking is None or "stream_options" in body:
        return
    inserted = len(asking) - len(raw)
    start = raw.rindex(b"}")
    assert asking[:start] + asking[start + inserted :] == raw


@pytest.mark.parametrize(
    ("options", "asking"),
    [
        (b"null", b'{"include_usage":true}'),
        (b"{ }", b'{"include_usage":true}'),
        (b'{ "include_usage" : false, "x":1.10 }', b'{ "include_usage" : true, "x":1.10 }'),
        (b'{"big":12345678901234567890123 }', b'{"big":12345678901234567890123 ,"include_usage":true}'),
        (b'{"a":{"include_usage":false}}', b'{"a":{"include_usage":false},"include_usage":true}'),
    ],
)
def test_options_that_are_there_already_keep_their_spelling(options: bytes, asking: bytes) -> None:
    raw = b'{"stream_options" : %b , "stream":true}'
    assert asking_for_usage(read(raw % options, compressed=False)) == raw % asking


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"[1]",
        b'"stream"',
        b'{"stream":true',
        b'{"stream":true}}',
        b"\xff\xfe",
        b'\xef\xbb\xbf{"stream":true}',
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"stream":true,"stream_options":"yes"}',
        b'{"stream":true,"stream_options":{},"stream_options":{}}',
        b'{"stream":1}',
        b'{"stream":false}',
    ],
)
def test_what_is_not_a_plain_streaming_request_is_left_alone(raw: bytes) -> None:
    assert asking_for_usage(read(raw, compressed=False)) is None


def test_a_compressed_body_is_not_read() -> None:
    assert not read(b'{"stream":true}', compressed=True).readable


def test_numbers_that_no_parser_keeps_survive_the_splice() -> None:
    raw = b'{"seed":123456789012345678901234567890,"t":1.10,"stream":true}'
    asking = asking_for_usage(read(raw, compressed=False))
    assert asking == raw[:-1] + b',"stream_options":{"include_usage":true}}'


def test_a_huge_string_is_passed_over_in_little_memory() -> None:
    """In a process of its own that may not have more: going back step by step would need gigabytes."""
    code = """
import resource
from proxy.messages import asking_for_usage, read
resource.setrlimit(resource.RLIMIT_AS, (700 * 2**20,) * 2)
image = b"QUJD" * 5_000_000
raw = b'{"stream":true,"stream_options":{},"messages":[{"role":"user","content":"' + image + b'"}]}'
asking = asking_for_usage(read(raw, compressed=False))
assert asking.startswith(b'{"stream":true,"stream_options":{"include_usage":true},"messages"')
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_escaped_key_is_recognised() -> None:
    raw = b'{"stream":true,"stream\\u005foptions":{"include_obfuscation":false}}'
    asking = asking_for_usage(read(raw, compressed=False))
    assert asking is not None
    assert orjson.loads(asking)["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_the_model_is_read_where_it_is_a_name() -> None:
    assert read(b'{"model":"gpt-4o"}', compressed=False).model == "gpt-4o"
    assert read(b'{"model":7}', compressed=False).model is None
