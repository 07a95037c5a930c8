from __future__ import annotations

import base64
import json
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.utterance import Call, Utterance, utterance, without_thoughts
from tests.fold.words import assistant, calls, result, turn, user

MEGABYTE = base64.b64encode(bytes(range(256)) * 4096).decode()
BYTES = len(MEGABYTE) * 3 // 4
PNG = "data:image/png;base64," + MEGABYTE
IN_URL = len(PNG) * 3 // 4


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"], "a\nb\nc"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "reasoning", "text": "hm"}], ""),
        (
            [{"type": "image_url", "image_url": {"url": PNG, "detail": "auto"}}],
            f"[image, image/png, {IN_URL} bytes]",
        ),
        (
            [{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}],
            "[image, https://a.example/b.png]",
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": MEGABYTE, "format": "wav"}}],
            f"[audio, {BYTES} bytes, wav]",
        ),
        (
            [{"type": "file", "file": {"filename": "a.pdf", "file_data": PNG}}],
            f"[file, a.pdf, image/png, {IN_URL} bytes]",
        ),
        ([{"type": "text", "text": 7}], '{"type":"text","text":7}'),
        ([{"type": "of tomorrow", "x": [1]}], '{"type":"of tomorrow","x":[1]}'),
        ([{"text": "no type"}], '{"text":"no type"}'),
        ([7, None, ["a"]], '7\n["a"]'),
        ("see " + MEGABYTE, f"see {BYTES} bytes"),
        ("\ud83d cut", "? cut"),
    ],
)
def test_content_of_every_shape_becomes_text(content: Any, text: str) -> None:
    message = {"role": "user", "content": content}
    assert utterance(json.dumps(message).encode()).text == text


def test_tool_calls_are_told_with_name_and_arguments() -> None:
    said = utterance(calls("read_file", '{"path":"a.py"}').raw)
    assert said.calls == (Call("call_1", "read_file", '{"path":"a.py"}'),)
    assert str(said.calls[0]) == 'read_file({"path":"a.py"})'


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"function_call": {"name": "f", "arguments": "{}"}}, Call("f", "f", "{}")),
        ({"tool_calls": [{"id": "1", "custom": {"name": "f", "input": "x"}}]}, Call("1", "f", "x")),
        (
            {"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
            Call("1", "f", '{"a":1}'),
        ),
        ({"tool_calls": [{"id": "1", "function": {"name": "f"}}]}, Call("1", "f", "")),
        ({"tool_calls": [{"function": None}]}, Call("", "", "")),
    ],
)
def test_calls_of_every_shape_are_read(fields: dict[str, Any], call: Call) -> None:
    assert utterance(assistant(None, **fields).raw).calls == (call,)


def test_a_result_names_the_call_that_it_answers() -> None:
    assert utterance(result("ok", "call_7").raw) == Utterance("tool", "ok", answers="call_7")
    legacy = turn({"role": "function", "name": "f", "content": "ok"})
    assert utterance(legacy.raw) == Utterance("function", "ok", "f", answers="f")


def test_what_a_model_thought_is_left_out() -> None:
    message = assistant("<think>hm, secret</think>\n\nYes.", reasoning_content="secret", reasoning=["secret"])
    assert utterance(message.raw).text == "Yes."
    assert utterance(user("<think>mine</think>").raw).text == "<think>mine</think>"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a<think>b</think>c<think>d</think>e", "ace"),
        ("<think>never closed", "<think>never closed"),
        ("</think>a", "</think>a"),
        ("plain ", "plain "),
    ],
)
def test_thoughts_end_where_they_are_closed(text: str, kept: str) -> None:
    assert without_thoughts(text) == kept


def test_what_was_spoken_aloud_or_refused_is_told() -> None:
    assert utterance(assistant(None, audio={"id": "1", "transcript": "Hi."}).raw).text == "Hi."
    assert utterance(assistant(None, refusal="I will not.").raw).text == "I will not."


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"7", b"{", b'{"role":7,"content":{}}', b"\xff\xfe", b'{"role":' + b"[" * 100_000]
)
def test_any_bytes_are_read(raw: bytes) -> None:
    assert utterance(raw).role == ""


def test_nesting_without_end_is_told_as_it_stands() -> None:
    raw = b'{"role":"user","content":[' + b"[" * 900 + b"]" * 900 + b"]}"
    assert utterance(raw).text == raw.decode()


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_no_bytes_upset_it(raw: bytes) -> None:
    utterance(raw).text.encode()


@pytest.mark.parametrize(
    "text",
    ["<think>" * 300_000, "</think>" * 300_000, "<think></think>" * 150_000, "A" * 10**7, "A/" * 10**6],
)
def test_megabytes_are_read_in_a_moment(text: str) -> None:
    raw = assistant(text).raw
    began = thread_time()
    utterance(raw)
    assert thread_time() - began < 5
