from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fold.history import Turn
from proxy.fold.shrink import LEAST, LEAST_IN_NEED, NOTE, shrunk, without_middle
from tests.fold.validator import faults
from tests.fold.words import assistant, calls, count, recorded, result, turn, user

LONG = "".join(f"line {number} of the log\n" for number in range(1000))


def tokens_of(raw: bytes) -> int:
    content = json.loads(raw).get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or []]
    return sum(map(count, texts))


@given(st.text(st.sampled_from("ab \n😀ü")), st.integers(0, 200))
def test_a_cut_text_is_never_longer_than_allowed_or_than_its_note(text: str, longest: int) -> None:
    cut = without_middle(text, longest, "[{} gone]")
    assert len(cut) <= max(longest, len("[{} gone]") + 3)
    assert len(cut) <= max(len(text), longest)


@given(st.text(st.sampled_from("ab \n"), min_size=60), st.integers(30, 50))
def test_a_cut_text_has_both_ends_and_says_how_much_is_gone(text: str, longest: int) -> None:
    head, _, rest = without_middle(text, longest, "[{} gone]").partition("[")
    number, _, tail = rest.partition(" gone]")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + int(number) + len(tail) == len(text)


def test_whole_lines_are_kept_where_a_break_is_near() -> None:
    lines = without_middle(LONG, 2000, NOTE).split("\n")
    note = next(index for index, line in enumerate(lines) if "characters left out" in line)
    assert lines[0] == "line 0 of the log"
    assert lines[note - 1].endswith("of the log")
    assert lines[note + 1].startswith("line ")
    assert lines[-2] == "line 999 of the log"


def test_the_largest_result_gives_up_what_is_needed_and_the_others_stay() -> None:
    turns = [user("hi"), calls("read", "{}"), result(LONG), calls("read", "{}"), result("small " * 200)]
    done = shrunk(turns, 1000, count)
    assert set(done.messages) == {2}
    assert done.saved == count(LONG) - tokens_of(done.messages[2])
    assert 1000 <= done.saved < 1500
    message = json.loads(done.messages[2])
    assert message.keys() == {"role", "tool_call_id", "content"}
    assert message["content"].startswith("line 0 of the log\n")
    assert "characters left out here to fit the context window" in message["content"]


def test_results_of_one_size_are_cut_alike() -> None:
    done = shrunk([result(LONG), result(LONG), result(LONG)], 3000, count)
    assert set(done.messages) == {0, 1, 2}
    assert len(set(done.messages.values())) == 1


def test_of_every_result_something_stays() -> None:
    done = shrunk([result(LONG), result(LONG)], 10**9, count)
    for raw in done.messages.values():
        assert 30 < tokens_of(raw) <= LEAST


@pytest.mark.parametrize("role", ["user", "system", "developer", "critic"])
def test_nobody_else_s_words_are_touched(role: str) -> None:
    done = shrunk([turn({"role": role, "content": LONG, "tool_calls": [calling("write", LONG)]})], 100, count)
    assert not done.messages
    assert done.saved == 0


def test_results_go_first_then_what_the_assistant_has_said_then_what_it_has_called_tools_with() -> None:
    arguments = json.dumps({"path": "a.log", "text": LONG})
    turns = [user("hi"), assistant(LONG, tool_calls=[calling("write", arguments)]), result(LONG)]
    one = count(LONG)
    results, speech, everything = (
        shrunk(turns, saving, count) for saving in (1000, one + 1000, 2 * one + 1000)
    )
    assert set(results.messages) == {2}
    assert set(speech.messages) == set(everything.messages) == {1, 2}
    spoken, whole = json.loads(speech.messages[1]), json.loads(everything.messages[1])
    assert "characters left out here" in spoken["content"]
    assert spoken["tool_calls"] == [calling("write", arguments)]
    [call] = whole["tool_calls"]
    found = json.loads(call["function"]["arguments"])
    assert call == calling("write", call["function"]["arguments"])
    assert (list(found), found["path"]) == (["path", "text"], "a.log")
    assert found["text"].startswith("line 0 of the log\n")
    assert "characters left out here" in found["text"]
    assert everything.saved >= 2 * one + 1000


def test_a_legacy_call_and_a_custom_tool_s_input_are_cut_too() -> None:
    legacy = assistant(None, function_call={"name": "write", "arguments": json.dumps({"text": LONG})})
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": LONG}}
    done = shrunk([legacy, assistant(None, tool_calls=[custom])], 2 * count(LONG) - 500, count)
    function = json.loads(done.messages[0])["function_call"]
    assert (function["name"], list(json.loads(function["arguments"]))) == ("write", ["text"])
    [call] = json.loads(done.messages[1])["tool_calls"]
    assert {**call, "custom": {**call["custom"], "input": LONG}} == custom
    assert "characters left out here" in call["custom"]["input"]


def test_a_legacy_result_is_one_too() -> None:
    legacy = turn({"role": "function", "name": "read", "content": LONG})
    assert set(shrunk([legacy], 100, count).messages) == {0}


def test_text_parts_are_cut_and_the_others_stay_as_they_are() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    marked = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    done = shrunk([result([image, marked, "text without a type", None])], 1000, count)
    parts = json.loads(done.messages[0])["content"]
    assert parts[0] == image
    assert parts[1]["cache_control"] == {"type": "ephemeral"}
    assert len(parts[1]["text"]) < len(LONG)
    assert parts[2:] == ["text without a type", None]


def test_whatever_is_not_content_keeps_its_own_spelling() -> None:
    raw = b'{"content": %b, "role":"tool","n": 123456789012345678901234567890, "x":1.50, "e":"\\u00e9"}'
    tool = Turn(raw % json.dumps(LONG).encode(), "tool", b"", 5000)
    after = shrunk([tool], 1000, count).messages[0]
    for spelling in (b"123456789012345678901234567890", b"1.50", b'"\\u00e9"'):
        assert spelling in after


def test_half_an_emoji_does_not_save_a_result_from_being_cut() -> None:
    raw = b'{"role":"tool","tool_call_id":"1","content":"\\ud83d%b"}' % (b"word " * 2000)
    done = shrunk([Turn(raw, "tool", b"", 2500)], 1000, count)
    assert json.loads(done.messages[0])["content"].startswith("\ud83dword")
    assert done.saved >= 1000


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"[]", b"7", b"{", b"\xff", b'{"content":"\xff"}'),
        *(b'{"role":"tool"}', b'{"role":"tool","content":7}', b'{"content":[7,null,[]]}'),
        b'{"role":"tool","content":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_cannot_be_read_is_left_alone(raw: bytes) -> None:
    assert not shrunk([Turn(raw, "tool", b"", 10_000)], 100, count).messages


results = st.text(max_size=400).map(result) | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=300)}), max_size=5
).map(result)


@given(st.lists(results | st.text().map(user), max_size=6), st.integers(0, 300))
def test_saves_what_it_says_and_as_much_as_was_wanted_where_it_can(turns: list[Turn], saving: int) -> None:
    done = shrunk(turns, saving, count)
    saved = [tokens_of(turns[place].raw) - tokens_of(raw) for place, raw in done.messages.items()]
    assert sum(saved) == done.saved
    assert all(each > 0 for each in saved)
    assert shrunk(turns, saving, count) == done
    for place, raw in done.messages.items():
        before, after = json.loads(turns[place].raw), json.loads(raw)
        assert {**before, "content": None} == {**after, "content": None}
    if done.saved < saving:  # then there was no more to be had
        assert shrunk(turns, 10**9, count).saved == done.saved


def calling(name: str, arguments: str, id: str = "call_1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=90), values, max_size=4).map(json.dumps) | st.text(max_size=300)


@st.composite
def groups(draw: st.DrawFn) -> list[Turn]:
    """A user message, and what the assistant has done about it."""
    asked = user(draw(st.text(max_size=300)))
    if draw(st.booleans()):
        function = {"name": "look", "arguments": draw(arguments)}
        answer = turn({"role": "function", "name": "look", "content": draw(st.text(max_size=300))})
        return [asked, assistant(draw(st.text(max_size=300)), function_call=function), answer]
    ids = [f"call_{number}" for number in range(draw(st.integers(1, 3)))]
    called = [calling("look", draw(arguments), id) for id in ids]
    answers = [result(draw(st.text(max_size=300)), id) for id in ids]
    return [asked, assistant(draw(st.text(max_size=300)), tool_calls=called), *answers]


@given(st.lists(groups(), min_size=1, max_size=3), st.integers(0, 600))
def test_whatever_is_cut_the_conversation_stays_valid_and_every_call_the_same(
    parts: list[list[Turn]], saving: int
) -> None:
    turns = [each for part in parts for each in part]
    done = shrunk(turns, saving, count, LEAST_IN_NEED)
    after = [json.loads(done.messages.get(place, each.raw)) for place, each in enumerate(turns)]
    assert faults(after) == []
    for message, cut in zip([json.loads(each.raw) for each in turns], after, strict=True):
        assert shape(message) == shape(cut)
        assert message == cut or message["role"] != "user"
    assert done.saved >= saving or shrunk(turns, 10**9, count, LEAST_IN_NEED).saved == done.saved


def shape(value: Any, name: str = "") -> Any:
    """Everything but the texts that may be cut."""
    if isinstance(value, dict):
        return {key: shape(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    if name == "arguments":
        try:
            return in_arguments(json.loads(value))
        except json.JSONDecodeError:
            return "no document"
    return "text" if name in ("content", "input") and isinstance(value, str) else value


def in_arguments(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_arguments(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_arguments(each) for each in value]
    return "text" if isinstance(value, str) else value


def test_a_result_of_many_small_parts_ends_soon() -> None:
    parts: list[Any] = [{"type": "text", "text": "crumb"}] * 5000
    assert not shrunk([result(parts)], 1, count).messages


def test_results_of_real_agents_are_cut_to_size() -> None:
    for turns in recorded("openhands.jsonl", 3):
        done = shrunk(turns, 5000, count)
        assert done.saved >= 5000
        assert all(turns[place].role == "tool" for place in done.messages)
