from __future__ import annotations

import base64
import json
import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.counting.estimate import Estimate
from proxy.counting.framing import (
    PER_CALL,
    PER_MESSAGE,
    PER_NAME,
    PER_ROLE,
    PER_SCHEMA,
    REQUEST,
    Scheme,
    measure_message,
    measure_response_format,
    measure_tools,
    words_and_digits,
)
from proxy.counting.tokenizer import Encodings, Tokenizer, rough
from proxy.counting.tools import PER_LIST, PER_TOOL

FRAME = PER_MESSAGE + PER_ROLE
MEGABYTE = base64.b64encode(bytes(range(256)) * 4096).decode()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    loaded = Encodings().load("o200k_base")
    assert loaded is not None
    return loaded


def measured(message: Any, tokenizer: Tokenizer | None, scheme: Scheme | None = None) -> Estimate:
    return measure_message(orjson.dumps(message), scheme or Scheme(), tokenizer)


def called(function: Any, **more: Any) -> dict[str, Any]:
    return {"id": "call_0123456789", "type": "function", "function": function, **more}


LOOK = {"name": "look", "arguments": '{"at": "the sky"}'}


@pytest.mark.parametrize(
    ("message", "fixed", "texts"),
    [
        ({"role": "user", "content": "hello there"}, 0, ["hello there"]),
        ({"role": "developer", "content": "hello there"}, 0, ["hello there"]),
        (
            {"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]},
            0,
            ["a b", "c"],
        ),
        ({"role": "user", "name": "Anna", "content": "hi"}, PER_NAME, ["Anna", "hi"]),
        ({"role": "assistant", "content": None, "refusal": "I cannot"}, 0, ["I cannot"]),
        ({"role": "assistant", "tool_calls": [called(LOOK)]}, PER_CALL, [*LOOK.values()]),
        ({"role": "assistant", "tool_calls": [called(LOOK)] * 2}, 2 * PER_CALL, [*LOOK.values()] * 2),
        (
            {"role": "assistant", "content": "Let me see.", "tool_calls": [called(LOOK)]},
            PER_CALL,
            ["Let me see.", *LOOK.values()],
        ),
        (
            {"role": "assistant", "tool_calls": [called({"name": "look", "arguments": {"at": ["a", 1]}})]},
            PER_CALL,
            ["look", '{"at":["a",1]}'],
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": "select 1"}}],
            },
            PER_CALL,
            ["sql", "select 1"],
        ),
        ({"role": "assistant", "function_call": LOOK}, PER_CALL, [*LOOK.values()]),
        ({"role": "tool", "tool_call_id": "call_0123456789", "content": "blue"}, 0, ["blue"]),
        ({"role": "function", "name": "look", "content": "blue"}, PER_NAME, ["look", "blue"]),
        # What is not billed when it is sent again.
        (
            {"role": "assistant", "content": "a", "reasoning_content": "much", "id": "msg_1", "audio": None},
            0,
            ["a"],
        ),
        # What no provider would take.
        ({}, 0, []),
        ("just text", 0, ['"just text"']),
        (None, 0, ["null"]),
        ([1, 2], 0, ["[1,2]"]),
        ({"role": ["user"], "name": 7, "content": {"a": 1}}, 0, ['{"a":1}']),
        ({"tool_calls": {"a": 1}}, 0, ['{"a":1}']),
        ({"tool_calls": [7, None, {"function": None}]}, 3 * PER_CALL, ["7", "null", '{"function":null}']),
        ({"tool_calls": [called({"name": None, "arguments": None})]}, PER_CALL, []),
        ({"function_call": "look"}, PER_CALL, ['"look"']),
    ],
)
def test_a_message_costs_its_frame_and_its_texts(
    tokenizer: Tokenizer, message: Any, fixed: int, texts: list[str]
) -> None:
    estimate = measured(message, tokenizer)
    assert estimate.fixed == FRAME + fixed
    assert estimate.tokens == sum(map(tokenizer.count, texts))
    assert not estimate.rough


COOKBOOK = [
    {
        "role": "system",
        "content": "You are a helpful, pattern-following assistant that translates corporate jargon into "
        "plain English.",
    },
    {"role": "system", "name": "example_user", "content": "New synergies will help drive top-line growth."},
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Things working well together will increase revenue.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "Let's circle back when we have more bandwidth to touch base on opportunities for "
        "increased leverage.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Let's talk later when we're less busy about how to do better.",
    },
    {
        "role": "user",
        "content": "This late pivot means we don't have time to boil the ocean for the client deliverable.",
    },
]


@pytest.mark.parametrize(("encoding", "billed"), [("o200k_base", 124), ("cl100k_base", 129)])
def test_openais_example_costs_what_openai_billed_for_it(encoding: str, billed: int) -> None:
    tokenizer = Encodings().load(encoding)
    assert sum(measured(message, tokenizer).plain for message in COOKBOOK) + REQUEST == billed


def test_arguments_cost_the_same_as_text_and_as_an_object(tokenizer: Tokenizer) -> None:
    arguments = {"path": "a.bin", "content": MEGABYTE[:5000]}
    as_text = called({"name": "write", "arguments": orjson.dumps(arguments).decode()})
    as_object = called({"name": "write", "arguments": arguments})
    assert measured({"tool_calls": [as_text]}, tokenizer) == measured({"tool_calls": [as_object]}, tokenizer)


def test_media_is_fixed_and_costs_by_the_rule_of_the_scheme(tokenizer: Tokenizer) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    message = {"role": "user", "content": [image, image]}
    assert measured(message, tokenizer) == Estimate(fixed=FRAME + 2 * 765, media=2)
    by_anthropic = measured(message, tokenizer, Scheme(images="anthropic"))
    assert by_anthropic == Estimate(fixed=FRAME + 2 * 1399, media=2)


@pytest.mark.parametrize(
    ("message", "media"),
    [
        ({"content": "text"}, 0),
        ({"content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}]}, 0),
        ({"content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}] * 2}, 2),
        ({"content": [{"type": "input_audio", "input_audio": {}}]}, 1),
        ({"content": [{"type": "file", "file": {"file_id": "file-1"}}]}, 1),
        ({"content": [{"type": "hologram-4", "shape": "round"}]}, 1),
        ({"content": None, "audio": {"id": "audio-1"}}, 1),
        ({"content": None, "audio": None}, 0),
        ({"content": "what is this?", "images": ["QUJD"]}, 1),
    ],
)
def test_whatever_is_not_text_is_told_apart_from_it(tokenizer: Tokenizer, message: Any, media: int) -> None:
    assert measured(message, tokenizer).media == measured(message, None).media == media


def test_the_description_of_media_is_counted_and_not_as_text(tokenizer: Tokenizer) -> None:
    estimate = measured({"content": [{"type": "file", "file": {"file_id": "file-1"}}]}, tokenizer)
    assert estimate == Estimate(fixed=FRAME + tokenizer.count("file-1"), media=1)


def test_a_megabyte_of_file_costs_its_metadata(tokenizer: Tokenizer) -> None:
    file = {"filename": "report.pdf", "file_data": "data:application/pdf;base64," + MEGABYTE}
    message = {"role": "user", "content": [{"type": "file", "file": file}]}
    assert measured(message, tokenizer).plain < FRAME + 20


def test_tools_are_counted(tokenizer: Tokenizer) -> None:
    tools = orjson.dumps([{"type": "function", "function": {"name": "look", "description": "Looks around."}}])
    estimate = measure_tools(tools, tokenizer)
    assert estimate.fixed == PER_LIST + PER_TOOL
    assert estimate.tokens == tokenizer.count("look:Looks around.")
    assert estimate.words == 3


SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("form", "counted"),
    [
        ({"type": "json_schema", "json_schema": SCHEMA}, SCHEMA),
        ({"type": "json_object", "schema": SCHEMA["schema"]}, SCHEMA["schema"]),
        ({"type": "json_object"}, None),
        ({"type": "text"}, None),
        (None, None),
        ([1], [1]),
    ],
)
def test_an_answers_format_costs_its_schema(tokenizer: Tokenizer, form: Any, counted: Any) -> None:
    estimate = measure_response_format(orjson.dumps(form), tokenizer)
    text = "" if counted is None else orjson.dumps(counted).decode()
    assert (estimate.fixed, estimate.tokens) == (PER_SCHEMA if text else 0, tokenizer.count(text))


class Broken:
    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    def encode_ordinary(self, text: str) -> list[int]:
        raise self._failure


class FirstKind(Exception):
    """Logged once per process, so each test has kinds of its own."""


class SecondKind(Exception):
    pass


PanicException = type("PanicException", (BaseException,), {})


@pytest.mark.parametrize("text", ["plain words", "中文字", "😀" * 7, "a" * 100])
@pytest.mark.parametrize("failure", [ValueError(), PanicException()])
def test_where_the_tokenizer_fails_the_count_is_rough(failure: BaseException, text: str) -> None:
    message = {"role": "user", "name": "Anna", "content": text}
    estimate = measured(message, Tokenizer(Broken(failure)))
    assert estimate == measured(message, None)
    assert estimate.fixed == FRAME + PER_NAME
    assert estimate.tokens == rough(text) + rough("Anna")
    assert rough(text) == max(-(-len(text) // 4), -(-len(text.encode()) // 3))
    assert estimate.rough == 1


def test_each_kind_of_failure_is_logged_once_and_without_the_text() -> None:
    with capture_logs() as logs:
        for failure in (FirstKind("secret"), FirstKind("secret"), SecondKind("secret"), FirstKind("secret")):
            measured({"role": "user", "content": "secret"}, Tokenizer(Broken(failure)))
    assert [line["kind"] for line in logs] == ["FirstKind", "SecondKind"]
    assert "secret" not in str(logs)


def test_an_interrupt_while_counting_goes_on_its_way() -> None:
    with pytest.raises(KeyboardInterrupt):
        measured({"role": "user", "content": "a"}, Tokenizer(Broken(KeyboardInterrupt())))


def nested(depth: int) -> bytes:
    return b'{"items":' * depth + b"1" + b"}" * depth


DEPTHS = pytest.mark.parametrize("depth", [100, 300, 1010, 5000])  # 254 is written, 1,024 is read


@DEPTHS
@pytest.mark.parametrize(
    "around",
    [
        b"%b",
        b'{"role":"user","content":%b}',
        b'{"role":"user","content":[{"type":"deep","deep":%b}]}',
        b'{"role":"assistant","tool_calls":[{"function":{"name":"look","arguments":%b}}]}',
        b'{"role":"user","name":%b}',
    ],
)
def test_no_depth_of_a_message_can_upset_it(tokenizer: Tokenizer, around: bytes, depth: int) -> None:
    assert measure_message(around % nested(depth), Scheme(), tokenizer).plain >= FRAME


@DEPTHS
@pytest.mark.parametrize(
    "around",
    [
        b"%b",
        b'[{"function":{"name":"look","description":%b}}]',
        b'[{"function":{"name":"look","parameters":%b}}]',
        b'[{"function":{"name":"look","parameters":{"properties":{"a":{"type":%b}}}}}]',
        b'[{"function":{"name":"look","parameters":{"properties":{"a":{"description":%b}}}}}]',
        b'[{"function":{"name":"look","parameters":{"enum":[%b]}}}]',
    ],
)
def test_no_depth_of_tools_can_upset_it(tokenizer: Tokenizer, around: bytes, depth: int) -> None:
    assert measure_tools(around % nested(depth), tokenizer).plain > 0


@DEPTHS
def test_no_depth_of_an_answers_format_can_upset_it(tokenizer: Tokenizer, depth: int) -> None:
    assert measure_response_format(b'{"json_schema":%b}' % nested(depth), tokenizer).plain > 0


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"user","content":"half an emoji: \\ud83d"}',
        b'{"role":"user","content":"\xff\xfe"}',
        b'{"role":"user","content":NaN}',
        b'{"role":"user","content":"cut sho',
        b"",
    ],
)
def test_json_that_cannot_be_read_is_counted_roughly(tokenizer: Tokenizer, raw: bytes) -> None:
    for estimate in (
        measure_message(raw, Scheme(), tokenizer),
        measure_tools(raw, tokenizer),
        measure_response_format(raw, tokenizer),
    ):
        assert estimate.rough == 1
        assert estimate.plain >= FRAME + len(raw) // 4


def test_base64_is_not_text_even_where_the_json_cannot_be_read() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + MEGABYTE}}
    message = json.dumps({"role": "user", "content": [part, "half an emoji: \ud83d"]})
    as_php_writes_it = message.replace("/", "\\/")
    for raw in (message, as_php_writes_it):
        assert measure_message(raw.encode(), Scheme(), None).plain < 100


def test_a_long_message_that_cannot_be_read_costs_hardly_more_for_being_taken_bit_by_bit() -> None:
    text = "word, [x] " * 200_000
    estimate = measure_message(b'{"content":"%b\xff"}' % text.encode(), Scheme(), None)
    assert estimate.rough == 1
    assert estimate.fixed == FRAME
    assert rough(text) <= estimate.tokens <= rough(text) + 40
    assert 2 * 200_000 <= estimate.words <= 2 * 200_000 + 40


@pytest.mark.parametrize(
    ("texts", "words", "digits"),
    [
        ([], 0, 0),
        (["hello there"], 2, 0),
        (["hello", "there"], 2, 0),
        (["snake_case camelCase"], 3, 0),
        (["a1b2"], 2, 2),
        (["2024-05-01"], 0, 8),
        (["naïve 中文 ٣"], 2, 0),
        (["\ud800 a"], 1, 0),
    ],
)
def test_words_and_digits_are_those_of_ascii(texts: list[str], words: int, digits: int) -> None:
    assert words_and_digits(texts) == (words, digits)


MESSAGE_KEYS = ["role", "content", "name", "refusal", "tool_calls", "function_call", "arguments", "input"]
PART_KEYS = ["type", "text", "image_url", "url", "detail", "input_audio", "file"]
TOOL_KEYS = ["function", "custom", "parameters", "properties", "items", "enum", "description"]
KEYS = st.sampled_from([*MESSAGE_KEYS, *PART_KEYS, *TOOL_KEYS, "json_schema", "schema"])
VALUES = st.sampled_from(["user", "assistant", "text", "image_url", "file", "input_audio", "low", "data:,"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | VALUES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(JSON)
@settings(deadline=None, max_examples=200)
def test_any_json_has_a_size_and_always_the_same(tokenizer: Tokenizer, value: Any) -> None:
    raw = json.dumps(value).encode()  # with NaN, lone surrogates and integers of any length
    for counted_by in (tokenizer, None):
        sizes = [
            (
                measure_message(raw, Scheme(), counted_by),
                measure_tools(raw, counted_by),
                measure_response_format(raw, counted_by),
            )
            for _ in range(2)
        ]
        assert sizes[0] == sizes[1]
        assert all(min(estimate.fixed, estimate.tokens) >= 0 for estimate in sizes[0])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x " * 2_000_000},
        {"role": "user", "content": [{"type": "text", "text": "x"}] * 100_000},
        {"role": "user", "content": [{"type": "hologram-3", "words": ("a" * 1023 + " ") * 4000}]},
        {"role": "user", "content": [{"type": "hologram-3", "data": MEGABYTE * 4}]},
        {"role": "assistant", "tool_calls": [called(LOOK)] * 50_000},
    ],
    ids=["long text", "many parts", "long words", "base64", "many calls"],
)
def test_a_message_of_megabytes_takes_a_moment(tokenizer: Tokenizer, message: Any) -> None:
    raw = orjson.dumps(message)
    before = time.thread_time()
    measure_message(raw, Scheme(), tokenizer)
    assert time.thread_time() - before < 5
