from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.fold.texts import Part, Path, Within, texts, with_texts

ARGUMENTS: Path = ("tool_calls", 0, "function", "arguments")


def called_with(arguments: Any) -> bytes:
    function = {"name": "write", "arguments": arguments}
    message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    return json.dumps(message).encode()


def found(raw: bytes, part: Part, role: str = "assistant") -> dict[Path, str]:
    return {each.path: each.text for each in texts(raw, role, part)}


def test_every_string_of_a_document_is_a_text_and_no_key_is_one() -> None:
    raw = called_with(' {"a\\"b": "c\\"d", "e" : ["f", 1.50, {"g": "\\u00e9"}], "": ""} ')
    assert list(found(raw, Part.ARGUMENTS).values()) == ['c"d', "f", "é"]


def test_what_is_changed_in_a_document_leaves_all_else_as_it_was_spelled() -> None:
    document = ' {"a": "old", "n": 123456789012345678901234567890, "x" : 1.50, "e":"\\u00e9"}\n'
    raw = called_with(document)
    [place, *_] = found(raw, Part.ARGUMENTS)
    after = with_texts(raw, {place: 'new "é"\n'})
    call = json.loads(after)["tool_calls"][0]["function"]
    assert call == {"name": "write", "arguments": document.replace('"old"', '"new \\"é\\"\\n"')}


@pytest.mark.parametrize("arguments", ["free text", '{"text": "broken o', "[1, 2", "[NaN, tru]"])
def test_what_is_no_document_is_one_text(arguments: str) -> None:
    assert found(called_with(arguments), Part.ARGUMENTS) == {ARGUMENTS: arguments}


@pytest.mark.parametrize("arguments", [None, 7, {"a": "b"}, "[" * 50_000 + "]" * 50_000])
def test_what_nobody_can_read_has_no_texts(arguments: Any) -> None:
    assert found(called_with(arguments), Part.ARGUMENTS) == {}


def test_a_number_of_ten_thousand_digits_makes_no_text_of_a_document() -> None:
    assert found(called_with(f'{{"n": {"9" * 10_000}, "a": "b"}}'), Part.ARGUMENTS) == {
        (*ARGUMENTS, Within(2)): "b"
    }


def test_half_an_emoji_in_a_document_is_written_as_it_came() -> None:
    raw = called_with('{"a": "\\ud83d and more"}')
    [(place, text)] = found(raw, Part.ARGUMENTS).items()
    after = json.loads(with_texts(raw, {place: text[:1]}))["tool_calls"][0]["function"]["arguments"]
    assert after == '{"a": "\\ud83d"}'


def test_many_strings_of_a_long_document_are_changed_at_once() -> None:
    raw = called_with(json.dumps(["text"] * 20_000))
    after = with_texts(raw, dict.fromkeys(found(raw, Part.ARGUMENTS), "other"))
    assert json.loads(json.loads(after)["tool_calls"][0]["function"]["arguments"]) == ["other"] * 20_000


def test_each_part_belongs_to_its_speaker() -> None:
    said = {"content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}, "c"]}
    raw = json.dumps(said).encode()
    assert found(raw, Part.SPEECH) == found(raw, Part.RESULT, "tool") == {("content", 0, "text"): "a"}
    assert found(raw, Part.RESULT, "function") == {("content", 0, "text"): "a"}
    for role, part in (
        ("user", Part.SPEECH),
        ("assistant", Part.RESULT),
        ("tool", Part.SPEECH),
        ("", Part.RESULT),
    ):
        assert found(raw, part, role) == {}
