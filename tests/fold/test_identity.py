from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from proxy.fold.history import DIGEST_SIZE
from proxy.fold.identity import said
from proxy.identify import TENANT_SIZE

TENANT = b"a caller's name."
CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"

Message = dict[str, Any]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# What every parser reads as the same number, and JavaScript writes as it was.
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def identity(message: object, tenant: bytes = TENANT) -> bytes:
    return said(json.dumps(message).encode(), tenant).identity


def user(content: object, **fields: object) -> Message:
    return {"role": "user", "content": content} | fields


def assistant(content: object = None, **fields: object) -> Message:
    return {"role": "assistant", "content": content} | fields


def text(words: str, **fields: object) -> Message:
    return {"type": "text", "text": words} | fields


def call(arguments: object, **fields: object) -> Message:
    function = {"name": "find", "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function} | fields


def calling(arguments: object, **fields: object) -> Message:
    return assistant(tool_calls=[call(arguments, **fields)])


# Of each field, values that all mean something else. None of them may stand for another.
MEANINGS: dict[str, list[Any]] = {
    "role": ["user", "assistant", "tool", "function", "system", "User", 7],
    "content": [
        None,
        "ab",
        "a b",
        "Ab",
        "a\u0308b",
        "\u00e4b",
        '["ab"]',
        '{"type":"text","text":"ab"}',
        [text("a"), text("b")],
        [text("b"), text("a")],
        [text("a"), text("a"), text("b")],
        [text("ab", citations=["c"])],
        [text("a"), {"type": "image_url", "image_url": {"url": "data:,1"}}],
        [{"type": "image_url", "image_url": {"url": "data:,1"}}, text("a")],
        [{"type": "image_url", "image_url": {"url": "data:,2"}}],
        [{"type": "image_url", "image_url": {"url": "data:,2", "detail": "low"}}],
        [{"type": "input_audio", "input_audio": {"data": "ab", "format": "wav"}}],
        [{"type": "refusal", "refusal": "ab"}],
        [{"type": "tool_use", "id": "1", "name": "ab", "input": {}}],
        [{"type": "tool_use", "id": "1", "name": "ab", "input": {"cache_control": 1}}],
        [{"type": "tool_use", "id": "1", "name": "ab", "input": {"cache_control": None}}],
        [["ab"]],
        [1],
        [True],
    ],
    "name": [None, "ab", "ba"],
    "tool_calls": [
        None,
        [call('{"a":1}')],
        [call('{"a":"1"}')],
        [call('{"a":true}')],
        [call('{"a":null}')],
        [call('{"b":1}')],
        [call('{"a":1,"cache_control":{}}')],
        [call('{"a":1,"reasoning":"r"}')],
        [call('{"a":[1,2]}')],
        [call('{"a":[2,1]}')],
        [call('{"a":1')],
        [call('{"a": 1')],
        [call('{"a":9007199254740993}')],
        [call('{"a":9007199254740992}')],
        [call('{"a":123456789012345678901234567890}')],
        [call('{"a":123456789012345678901234567891}')],
        [call("{}")],
        [call("[]")],
        [call('""')],
        [call("{}"), call('{"a":1}')],
        [call('{"a":1}'), call("{}")],
        [call("{}", id="call_2")],
        [call("{}", function={"name": "seek", "arguments": "{}"})],
        [{"id": "call_1", "type": "custom", "custom": {"name": "find", "input": '{"a":1}'}}],
        [{"id": "call_1", "type": "custom", "custom": {"name": "find", "input": '{"a": 1}'}}],
    ],
    "function_call": [None, {"name": "find", "arguments": '{"a":1}'}, {"name": "find", "arguments": "{}"}],
    "tool_call_id": [None, "call_1", "call_2"],
    "refusal": [None, "ab", "I cannot"],
    "audio": [None, {"id": "audio_1"}, {"id": "audio_2"}, {"id": "audio_1", "transcript": "ab"}],
    "annotations": [None, [{"type": "url_citation"}], [{"type": "file"}]],
    "prefix": [None, True, False, 0, 1, 0.5, "true", [None], [""], {"a": {"b": "c"}}, {"a": {"c": "b"}}],
}
chosen = st.fixed_dictionaries({}, optional={key: st.sampled_from(each) for key, each in MEANINGS.items()})


def meaning(message: Message) -> str:
    return json.dumps({key: each for key, each in message.items() if each is not None}, sort_keys=True)


@given(chosen, st.data())
def test_any_change_of_meaning_changes_the_identity(message: Message, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(MEANINGS)))
    other = message | {key: data.draw(st.sampled_from(MEANINGS[key]))}
    assert (identity(message) == identity(other)) == (meaning(message) == meaning(other))


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize("key", sorted(MEANINGS))
def test_no_two_values_of_a_field_are_taken_for_one_another(key: str, role: str) -> None:
    names = [identity({"role": role, key: each}) for each in MEANINGS[key]]
    assert len(set(names)) == len(names)


def test_what_is_said_in_one_field_is_not_what_is_said_in_another() -> None:
    keys = ["content", "name", "refusal", "tool_call_id", "user_defined"]
    assert len({identity({"role": "assistant", key: "ab"}) for key in keys}) == len(keys)


@given(texts, texts, st.sampled_from(["content", "name", "tool_call_id", "anything"]))
def test_text_of_users_and_tools_counts_to_the_last_character(one: str, other: str, key: str) -> None:
    first, second = (identity({"role": "tool", key: each}) for each in (one, other))
    assert (first == second) == (one == other)


@given(st.dictionaries(texts, values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_arguments_are_the_same_when_their_json_is(one: Message, other: Message) -> None:
    first, second = (identity(calling(json.dumps(each))) for each in (one, other))
    assert (first == second) == (numbers_as_one(one) == numbers_as_one(other))


def numbers_as_one(value: Any) -> str:
    return json.dumps(json.loads(json.dumps(value), parse_float=shortest), sort_keys=True)


def shortest(number: str) -> float:
    return int(float(number)) if float(number).is_integer() else float(number)


def respelled(draw: st.DrawFn, value: Any) -> Any:
    """The same with its keys in another order and some of its whole numbers as decimals."""
    if isinstance(value, dict):
        return {key: respelled(draw, value[key]) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [respelled(draw, each) for each in value]
    if type(value) is int and abs(value) < 2**53 and draw(st.booleans()):
        return float(value)
    return value


@st.composite
def spelled_twice(draw: st.DrawFn) -> tuple[bytes, bytes]:
    message = draw(chosen) | draw(st.dictionaries(texts, values, max_size=3))
    return spelling(draw, message), spelling(draw, respelled(draw, message))


def spelling(draw: st.DrawFn, message: Message) -> bytes:
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", "\t: ")]))
    space = draw(st.sampled_from(["", " ", "\n"]))
    spelled = json.dumps(message, separators=separators, ensure_ascii=draw(st.booleans()))
    return (space + spelled + space).encode()


@given(spelled_twice())
def test_white_space_key_order_escapes_and_ways_to_write_a_number_do_not_matter(
    case: tuple[bytes, bytes],
) -> None:
    one, other = case
    assert said(one, TENANT) == said(other, TENANT)


TOOLS = [call('{"a":1}')]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("ab"), user([text("ab")])),
        (user("ab"), user([text("ab", cache_control={"type": "ephemeral"})])),
        (user("ab"), user("ab", cache_control={"type": "ephemeral"}, name=None)),
        (user("ab"), user([text("ab"), text("")])),
        (user(None), user("")),
        (user(None), {"role": "user"}),
        (
            user([{"type": "image_url", "image_url": {"url": "u"}}]),
            user([{"type": "image_url", "image_url": {"url": "u", "detail": None}, "cache_control": {}}]),
        ),
        (assistant(None, tool_calls=TOOLS), {"role": "assistant", "tool_calls": TOOLS}),
        (assistant(None, tool_calls=TOOLS), assistant("", tool_calls=TOOLS)),
        (assistant(None, tool_calls=TOOLS), assistant([], tool_calls=TOOLS)),
        (assistant(None, tool_calls=TOOLS), assistant([text("")], tool_calls=TOOLS)),
        (assistant("ab"), assistant("ab", tool_calls=[], refusal=None, annotations=[], audio=None)),
        (assistant("ab"), assistant("ab", tool_calls=None, function_call=None)),
        (assistant("ab"), assistant("\n ab\n")),
        (
            assistant("ab"),
            assistant("ab", reasoning="r", reasoning_content="r", reasoning_details=[{"t": 1}]),
        ),
        (assistant("ab"), assistant([{"type": "thinking", "thinking": "t", "signature": "s"}, text("ab")])),
        (assistant("ab"), assistant([{"type": "redacted_thinking", "data": "d"}, text("ab")])),
        (assistant("ab"), assistant("<think>\nhm </think>\n\nab")),
        (assistant("ab"), assistant("\n<think>hm <think></think>ab")),
        (assistant("ab"), assistant([text("<think>hm</think>ab", cache_control={})])),
        (assistant(tool_calls=TOOLS), assistant("<think>hm</think>", tool_calls=TOOLS)),
        (calling('{"a":1}'), calling(' {\n"a" : 1.0 } ')),
        (calling('{"a":1,"b":"\u00e4"}'), calling('{"b":"\\u00e4","a":1}')),
        (calling('{"a":1}'), calling({"a": 1})),
        (calling("{}"), calling("")),
        (calling("{}"), calling(None)),
        (calling("{}"), calling("{}", index=0)),
        (calling("{}"), calling("{}", type=None)),
        (calling("{}"), calling("{}", cache_control={"type": "ephemeral"})),
        (calling("{}"), calling("{}", extra_content={"google": {"thought_signature": "s"}})),
        (
            assistant(function_call={"name": "find", "arguments": '{"a":1}'}),
            assistant("", function_call={"name": "find", "arguments": '{ "a": 1 }'}, tool_calls=None),
        ),
    ],
)
def test_what_clients_drop_or_rewrite_does_not_count(one: Message, other: Message) -> None:
    assert said(json.dumps(one).encode(), TENANT) == said(json.dumps(other).encode(), TENANT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("ab"), user("<think>hm</think>ab")),
        (user("ab"), user("ab ")),
        (user("ab"), user([{"type": "thinking", "thinking": "t"}, text("ab")])),
        (user("ab"), user("ab", reasoning="r")),
        (assistant("ab"), assistant("ab<think>hm</think>")),
        (assistant("ab"), assistant("<think>hm ab")),
        (assistant("ab"), assistant("<thinking>hm</thinking>ab")),
        (assistant("a b"), assistant("a  b")),
        (assistant("ab"), assistant("ab", cache_controls={"type": "ephemeral"})),
        (user("ab", input={"cache_control": 1}), user("ab", input={})),
        (calling('{"a":1}'), assistant(function_call={"name": "find", "arguments": '{"a":1}'})),
    ],
)
def test_what_only_looks_like_it_counts(one: Message, other: Message) -> None:
    assert identity(one) != identity(other)


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "content": "ab"},
        {"role": "assistant", "content": None, "refusal": "I cannot"},
        {"role": "assistant", "tool_calls": [call('{"a": 1}'), call("{}", id="call_2")]},
        {"role": "assistant", "content": "ab", "reasoning_content": "r"},
    ],
)
def test_an_answer_is_recognised_in_every_form_that_the_sdk_writes_it(answer: Message) -> None:
    message = ChatCompletionMessage.model_validate(answer)
    forms = [message.model_dump(), message.model_dump(exclude_none=True), message.to_dict(), answer]
    assert len({identity(form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("message", "role", "calls", "answers"),
    [
        (user("ab"), "user", (), None),
        (calling("{}"), "assistant", ("call_1",), None),
        (
            assistant(tool_calls=[call("{}"), call("{}", id="c"), {"id": 1}, None], function_call="f"),
            "assistant",
            ("call_1", "c"),
            None,
        ),
        (assistant(tool_calls=[{"id": "x", "type": "custom", "custom": {}}]), "assistant", ("x",), None),
        (assistant(function_call={"name": "find", "arguments": ""}), "assistant", ("find",), None),
        (user("ab", tool_calls=[call("{}")], tool_call_id="call_1", name="find"), "user", (), None),
        ({"role": "tool", "tool_call_id": "call_1", "name": "find"}, "tool", (), "call_1"),
        ({"role": "tool", "tool_call_id": 1}, "tool", (), None),
        ({"role": "function", "name": "find", "content": "ab"}, "function", (), "find"),
        (assistant(tool_calls={"id": "x"}), "assistant", (), None),
        ({"role": ["user"]}, "", (), None),
        ({"content": "ab"}, "", (), None),
    ],
)
def test_calls_and_what_answers_them_are_found(
    message: Message, role: str, calls: tuple[str, ...], answers: str | None
) -> None:
    found = said(json.dumps(message).encode(), TENANT)
    assert (found.role, found.calls, found.answers) == (role, calls, answers)


@pytest.mark.parametrize(
    "content", [b"1e400", b"NaN", b'"\\ud83d"', b"[" * 500 + b"]" * 500, b"12345678901234567890123"]
)
def test_a_result_that_has_no_exact_reading_keeps_its_call_and_goes_by_its_bytes(content: bytes) -> None:
    raw = b'{"role":"tool","tool_call_id":"call_1","content":%b}'
    found = said(raw % content, TENANT)
    assert (found.role, found.answers) == ("tool", "call_1")
    assert found == said(raw % content, TENANT)
    assert found.identity != said((raw % content).replace(b",", b", "), TENANT).identity


def test_large_integers_that_a_double_cannot_tell_apart_are_told_apart() -> None:
    raw = b'{"role":"user","content":"ab","seed":%b}'
    seeds = [b"%d" % seed for seed in (2**53, 2**53 + 1, 2**64 - 1, 2**64, 2**64 + 1, 10**400, 10**400 + 1)]
    seeds += [b"1" * 5000, b"1" * 4999 + b"2"]
    assert len({said(raw % seed, TENANT).identity for seed in seeds}) == len(seeds)


messages_of_any_types = st.dictionaries(
    st.sampled_from([*MEANINGS, "cache_control", "arguments", "input"]), values, max_size=6
)


@given(st.binary() | (values | messages_of_any_types).map(lambda value: json.dumps(value).encode()))
def test_anything_at_all_has_an_identity(raw: bytes) -> None:
    found = said(raw, TENANT)
    assert len(found.identity) == DIGEST_SIZE
    assert found == said(raw, TENANT)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"content":[', b'{"tool_calls":[{"function":'])
@pytest.mark.parametrize("depth", [20, 40, 70, 300, 1_100, 100_000])
def test_no_depth_is_too_deep(opening: bytes, depth: int) -> None:
    closing = opening.translate(bytes.maketrans(b"[{", b"]}"), delete=b'":abcdefghijklmnopqrstuvwxyz_')[::-1]
    raw = b'{"role":"assistant","x":' + opening * depth + b"1" + closing * depth + b"}"
    assert said(raw, TENANT).identity != said(raw.replace(b"1", b"2"), TENANT).identity


@pytest.mark.parametrize(
    "one", [b"", b"[]", b"null", b'"ab"', b"{", b'{"role":"user"', b"\xff", b"\xef\xbb\xbf{}"]
)
def test_what_is_no_message_goes_by_its_bytes(one: bytes) -> None:
    assert said(one, TENANT).identity not in {said(one + b" ", TENANT).identity, identity(user("ab"))}
    assert said(one, TENANT).role == ""


callers = st.binary(min_size=TENANT_SIZE, max_size=TENANT_SIZE)


@given(chosen, st.binary(), callers, callers)
def test_nobody_says_what_another_caller_says(message: Message, raw: bytes, one: bytes, other: bytes) -> None:
    assert (identity(message, one) == identity(message, other)) == (one == other)
    assert (said(raw, one) == said(raw, other)) == (one == other)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not beside the project")
def test_messages_of_real_clients_survive_another_clients_spelling() -> None:
    bodies = [json.loads(path.read_text())["body"] for path in sorted(CAPTURES.glob("*.json"))]
    messages = [each for body in bodies if body for each in body.get("messages", [])]
    for message in messages:
        again = {key: message[key] for key in reversed(message)} | {"refusal": None}
        if isinstance(again["content"], str):
            again["content"] = [text(again["content"])]
        assert identity(message) == identity(again)
    assert len({identity(each) for each in messages}) < len(messages)  # "ping" in two shapes is one message
