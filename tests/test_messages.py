from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.messages import (
    ChatRequest,
    asking_for_usage,
    beside_messages,
    items,
    read,
    read_decompressed,
    role_of,
    with_messages,
)

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
from proxy.messages import asking_for_usage, items, read, read_decompressed, role_of, with_messages
resource.setrlimit(resource.RLIMIT_AS, (700 * 2**20,) * 2)
image = b"QUJD" * 5_000_000
raw = b'{"stream":true,"stream_options":{},"messages":[{"role":"user","content":"' + image + b'"}]}'
asking = asking_for_usage(read(raw, compressed=False))
assert asking.startswith(b'{"stream":true,"stream_options":{"include_usage":true},"messages"')
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def counted_steps(work: Callable[[], object]) -> int:
    """How many calls it takes, of Python's own functions too: a loop over a body cannot hide among them."""
    steps = 0

    def step(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(before)
    return steps


MANY = b"[" + b"1," * 1_000_000 + b"1]"
TO_BE_ASKED = b'{"stream":true,"stream_options":{"include_usage":false},%b,"n":1}'


@pytest.mark.parametrize(
    "members",
    [
        b'"messages":' + MANY,
        b'"tools":' + MANY,
        b'"functions":' + MANY,
        b'"response_format":{"schema":' + MANY + b"}",
        b'"messages":%b,"tools":%b' % (MANY, MANY),
        b'"tools":%b,"messages":[%b,"and more"]' % (MANY, MANY),
    ],
    ids=["messages", "tools", "functions", "response_format", "alike", "one in the other"],
)
def test_what_is_long_in_a_request_is_not_looked_through_for_the_wish(members: bytes) -> None:
    chat = read(TO_BE_ASKED % members, compressed=False)
    assert asking_for_usage(chat) == chat.raw.replace(b"false", b"true")
    assert counted_steps(lambda: asking_for_usage(chat)) < 1_000


@pytest.mark.parametrize(
    ("members", "most"),
    [
        (b'"documents":' + MANY, 1_000),
        (b'"documents":' + MANY[-1_000_000:].replace(b"1,", b"[1,", 1), 200_000),
        (b'"messages":%b,"messages":%b' % (MANY, MANY), 1_000),
    ],
    ids=["long", "intricate", "said twice"],
)
def test_a_request_that_would_take_long_to_look_through_is_left_as_it_is(members: bytes, most: int) -> None:
    chat = read(TO_BE_ASKED % members, compressed=False)
    assert chat.readable
    assert asking_for_usage(chat) is None
    assert counted_steps(lambda: asking_for_usage(chat)) < most


ONES = "1," * 3_000 + "1"
# Of these one is in another, one in a string of another, and one can also be read from the middle of another.
LONG = [
    f"[{ONES}]",
    f'{{"a":[{ONES}]}}',
    f'"[{ONES}]"',
    f'[" ,{ONES},"]',
    f'["[" ,{ONES},"]"]',
    f'"{ONES}"',
    f'["","{ONES}",""]',
    "1" * 4_200,
    "1" * 4_201,
]
SHORT = ["{}", "[]", "1", "null", '{"include_usage":false}', '{"messages":[]}', '"],:{"']
KEYS = ["messages", "tools", "functions", "response_format", "stream_options", "metadata", 'a"}{', ONES]


@st.composite
def long_bodies(draw: st.DrawFn) -> bytes:
    """The same few long values in all places: as members, in one another, in strings, said twice."""
    pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from([*LONG, *SHORT]))
    members = [*draw(st.lists(pairs, max_size=7)), ("stream", "true")]
    colon, comma = draw(st.sampled_from([(":", ","), (" : ", " ,\n ")]))
    ordered = draw(st.permutations(members))
    return ("{" + comma.join(json.dumps(key) + colon + value for key, value in ordered) + "}").encode()


def searched_whole(chat: ChatRequest) -> ChatRequest:
    """The same request, without a word on where it is long."""
    return replace(chat, messages=b"?", tools=b"", functions=b"", response_format=b"")


@given(long_bodies())
def test_what_is_cut_out_of_the_search_changes_nothing_about_what_is_found(raw: bytes) -> None:
    chat = read(raw, compressed=False)
    assert chat.readable
    assert asking_for_usage(chat) == asking_for_usage(searched_whole(chat))
    if chat.messages:
        assert with_messages(chat, b"[]") == with_messages(searched_whole(chat), b"[]")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (f'"metadata":{{"messages":{LONG[0]}}}', LONG[0]),
        (f'"user":{LONG[2]}', LONG[0]),
        (f'"[{ONES}]":1', LONG[0]),
        (f'"tools":{LONG[0]}', LONG[0]),
        (f'"tools":{LONG[1]}', LONG[0]),
        (f'"a":{LONG[4]}', LONG[3]),
        (f'"seed":{LONG[8]}', LONG[7]),
    ],
)
def test_where_the_same_bytes_stand_somewhere_else_the_messages_are_still_found(
    before: str, said: str
) -> None:
    raw = f'{{{before},"stream":true,"stream_options":{{}},"messages":{said}}}'.encode()
    assert raw.index(said.encode()) < len(before) + 1
    chat = read(raw, compressed=False)
    assert with_messages(chat, b"[2]") == raw[: -len(said) - 1] + b"[2]}"
    assert asking_for_usage(chat) == raw.replace(b"{}", b'{"include_usage":true}')


def test_a_key_that_no_parser_reads_is_none_that_is_looked_for() -> None:
    raw = b'{"\xff":1,"stream":true,"stream_options":{}}'
    asking = asking_for_usage(read(raw, compressed=False))
    assert asking == raw.replace(b"{}", b'{"include_usage":true}')


def test_a_wish_that_is_said_often_is_granted_everywhere() -> None:
    raw = b'{"stream":true,"stream_options":{"include_usage":false,"a":1,"include_usage":null}}'
    asking = asking_for_usage(read(raw, compressed=False))
    assert asking == raw.replace(b"false", b"true").replace(b"null", b"true")


def test_an_escaped_key_is_recognised() -> None:
    raw = b'{"stream":true,"stream\\u005foptions":{"include_obfuscation":false}}'
    asking = asking_for_usage(read(raw, compressed=False))
    assert asking is not None
    assert orjson.loads(asking)["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_the_model_is_read_where_it_is_a_name() -> None:
    assert read(b'{"model":"gpt-4o"}', compressed=False).model == "gpt-4o"
    assert read(b'{"model":7}', compressed=False).model is None


def test_a_name_longer_than_any_model_has_names_nothing() -> None:
    body = orjson.dumps({"model": "x" * 513})
    assert read(body, compressed=False).model is None


@pytest.mark.parametrize(
    "half", ["\\ud83d", "\\uDE00", "\\ude00\\ud83d", "a\\\\\\ud83d", "\\ud83d\\ud83d\\ude00"]
)
def test_half_of_an_emoji_hides_nothing_and_stays_in_what_is_forwarded(half: str) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % half.encode()
    chat = read(body, compressed=False)
    assert (chat.readable, chat.model, chat.raw) == (True, "m", body)
    assert len(chat.messages) == len(body) - len(b'{"model":"m","messages":}')


def test_a_whole_emoji_and_what_only_looks_like_half_of_one_are_read_as_they_are() -> None:
    content = b'"\\ud83d\\ude00 \\\\ud83d \\u00e9"'
    broken_elsewhere = b'{"model":"m","stop":"\\ud800","messages":[{"role":"user","content":%b}]}' % content
    assert content in read(broken_elsewhere, compressed=False).messages


@given(
    st.lists(st.sampled_from(["\\", "\\\\", "\\u", "\\ud83d", "\\uDE00", "u", "d83d", "n", "\\n", "0", "\1"]))
)
def test_halves_are_told_from_what_looks_like_them_in_any_text(parts: list[str]) -> None:
    """Seen by Python's own parser, which knows what is an escape and leaves halves as they are."""
    text = "".join(parts).encode()
    chat = read(b'{"stop":"\\ud800","messages":"%b"}' % text, compressed=False)
    try:
        said = json.loads(b'"%b"' % text)
    except json.JSONDecodeError:
        assert not chat.readable
        return
    assert len(chat.messages) == len(text) + 2
    assert json.loads(chat.messages) == "".join(
        "\ufffd" if "\ud800" <= each <= "\udfff" else each for each in said
    )


def test_one_half_in_a_long_text_is_mended_in_few_steps() -> None:
    body = b'{"model":"m","messages":["%b \\\\ud83d \\ud83d"]}' % (b"a line\\n" * 200_000)
    assert read(body, compressed=False).model == "m"
    assert counted_steps(lambda: read(body, compressed=False)) < 1_000


@pytest.mark.parametrize(
    "text", [rb"\ud83d" * 100_000, rb"\\" * 500_000 + rb"\ud83d", rb"\ud83d" + b" " * 8 * 1024 * 1024]
)
def test_what_would_take_long_to_mend_is_left_unread(text: bytes) -> None:
    assert not read(b'{"model":"m","stop":"%b"}' % text, compressed=False).readable


def test_what_is_counted_is_taken_in_the_clients_own_bytes() -> None:
    chat = read(
        b'{"messages" :  [ {"role":"user" , "content":1.10} ] , "tools":[ ],'
        b'"functions":[{"n":12345678901234567890123}],"response_format" : {"type":"text"} }',
        compressed=False,
    )
    assert chat.messages == b'[ {"role":"user" , "content":1.10} ]'
    assert chat.tools == b"[ ]"
    assert chat.functions == b'[{"n":12345678901234567890123}]'
    assert chat.response_format == b'{"type":"text"}'


def test_what_is_absent_is_empty() -> None:
    chat = read(b"{}", compressed=False)
    assert chat.readable
    assert (chat.messages, chat.tools, chat.functions, chat.response_format) == (b"", b"", b"", b"")
    assert (chat.answer_limit, chat.choices, chat.model, chat.streams) == (None, 1, None, False)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"max_tokens":100}', 100),
        (b'{"max_completion_tokens":200}', 200),
        (b'{"max_tokens":100,"max_completion_tokens":200}', 200),
        (b'{"max_tokens":100,"max_completion_tokens":null}', 100),
        (b'{"max_tokens":100,"max_completion_tokens":-1}', 100),
        (b'{"max_tokens":-1}', None),
        (b'{"max_tokens":0}', None),
        (b'{"max_tokens":null}', None),
        (b'{"max_tokens":true}', None),
        (b'{"max_tokens":"100"}', None),
        (b'{"max_tokens":1e3}', None),
        (b'{"max_tokens":123456789012345678901234567890}', None),
    ],
)
def test_how_long_the_answer_may_be_is_read_where_it_is_a_number_of_tokens(
    body: bytes, limit: int | None
) -> None:
    assert read(body, compressed=False).answer_limit == limit


@pytest.mark.parametrize(
    ("body", "choices"),
    [(b'{"n":3}', 3), (b'{"n":1}', 1), (b'{"n":0}', 1), (b'{"n":null}', 1), (b'{"n":"3"}', 1), (b"{}", 1)],
)
def test_how_many_answers_are_asked_for_is_one_unless_said(body: bytes, choices: int) -> None:
    assert read(body, compressed=False).choices == choices


def test_of_what_is_said_twice_the_last_counts() -> None:
    assert read(b'{"messages":[1],"messages":[2]}', compressed=False).messages == b"[2]"


@given(st.lists(values, max_size=6), st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", "\t: ")]))
def test_the_elements_of_an_array_are_parts_of_its_bytes(
    elements: list[Any], separators: tuple[str, str]
) -> None:
    array = json.dumps(elements, separators=separators).encode()
    found = items(array)
    if found is None:
        return  # a lone surrogate: nobody reads that
    assert [json.loads(item) for item in found] == elements
    place = 0
    for item in found:
        place = array.index(item, place) + len(item)


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b"7", b'"[]"', b"[1", b"[1,]", b"[" * 100_000, b"\xff"])
def test_what_is_no_array_has_no_elements(raw: bytes) -> None:
    assert items(raw) is None


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (b'{"role":"user","content":"x"}', "user"),
        (b'{"content":{"role":"system"},"role" : "tool"}', "tool"),
        (b'{"r\\u006fle":"\\u0075ser"}', "user"),
        (b'{"role":7}', ""),
        (b'{"role":null}', ""),
        (b"{}", ""),
        (b"[1]", ""),
        (b'"user"', ""),
        (b"null", ""),
        (b"", ""),
        (b'{"role":"\xff"}', ""),
        (b'{"role":' + b"[" * 100_000, ""),
    ],
)
def test_the_speaker_is_read_where_a_message_says_who_it_is(message: bytes, role: str) -> None:
    assert role_of(message) == role


@given(streaming_bodies())
def test_other_messages_are_put_in_and_not_a_byte_beside_them_changes(
    case: tuple[dict[str, Any], bytes],
) -> None:
    body, raw = case
    if not read(raw, compressed=False).readable or "messages" in body:
        return
    end = raw.rindex(b"}")
    before, after = raw[:end] + b', "messages" : ', raw[end:]
    chat = read(before + b'[{"role":"user","content":"]}"}]' + after, compressed=False)
    assert with_messages(chat, b"[1]") == before + b"[1]" + after


def test_what_stands_beside_the_messages_is_told_in_the_clients_own_bytes() -> None:
    raw = b'{ "seed":1.0, "messages": [{"tools":[]}] ,"m\\u006fdel":"a","tools":[ {"a":"}"} ]}'
    assert beside_messages(read(raw, compressed=False)) == {
        "seed": b"1.0",
        "model": b'"a"',
        "tools": b'[ {"a":"}"} ]',
    }
    unheard = b'{"messages":[],"\\ud83d":1}'
    assert beside_messages(read(unheard, compressed=False)) is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[],"n":1,"messages":[]}',
        b'{"messages":[1],"n":1,"messages":[2]}',
        b'{"messages":[1],"n":1,"m\\u0065ssages":[2]}',
        b'{"metadata":{"messages":[]}}',
        b"{}",
        b"[]",
    ],
)
def test_messages_that_are_there_twice_or_not_at_all_are_left_alone(raw: bytes) -> None:
    assert with_messages(read(raw, compressed=False), b"[3]") is None


def test_a_request_that_was_read_from_a_copy_has_its_messages_left_alone() -> None:
    plain = b'{"messages":[{"role":"user","content":"hello"}]}'
    broken = plain.replace(b"hello", b"\\ud83d")
    assert with_messages(read_decompressed(b"compressed", plain), b"[1]") is None
    assert with_messages(read(broken, compressed=False), b"[1]") is None
    assert beside_messages(read(broken, compressed=False)) is None
