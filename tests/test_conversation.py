from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import LONGEST_ID, Conversation
from proxy.conversation import conversation_of as conversation_by
from proxy.fold.history import Turn, history
from proxy.fold.identity import said
from proxy.messages import read

TENANT = b"a caller's name."
CAPTURES = Path(__file__).parent.parent.parent / "shared" / "captures"
CHAIN = [b"\x01" * 16, b"\x02" * 16, b"\x03" * 16]
BY_CONTENT = Conversation("content-" + "02" * 16, "content")

Pair = tuple[bytes, bytes]


def conversation_of(headers: Sequence[Pair], body: bytes, chain: Sequence[bytes]) -> Conversation:
    return conversation_by(headers, read(body, compressed=False).names, chain)


def of(*headers: Pair, body: object = None) -> Conversation:
    return conversation_of(headers, json.dumps(body).encode(), CHAIN)


def chain_of(messages: list[object]) -> list[bytes]:
    told = [(raw, said(raw, TENANT)) for raw in (json.dumps(message).encode() for message in messages)]
    return list(history([Turn(raw, each.role, each.identity, 1) for raw, each in told], TENANT).chain)


CODEX, OPENCODE = "01a1ed8c-ace2-7ed2-a2b0-00f6ba725a37", "ses_e12736b50ffe6ikma6XfllOa7H"
SAID_BY = {
    "codex-020.json": Conversation(CODEX, "client"),
    "opencode-018.json": Conversation(OPENCODE, "client"),
    "opencode-019.json": Conversation(OPENCODE, "client"),
}


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not beside the project")
def test_real_clients_are_taken_at_their_word_and_the_others_by_their_content() -> None:
    for path in sorted(CAPTURES.glob("*.json")):
        capture = json.loads(path.read_text())
        headers = [(name.encode(), value.encode()) for name, value in capture["headers"].items()]
        body = capture["body"] or {}
        chain = chain_of(body.get("messages", []))
        found = conversation_of(headers, json.dumps(body).encode(), chain)
        beginning = chain[1] if len(chain) > 1 else chain[0]
        assert found == SAID_BY.get(path.name, Conversation("content-" + beginning.hex(), "content")), (
            path.name
        )


HEADERS = [
    "X-Conversation-Id",
    "X-OpenWebUI-Chat-Id",
    "thread-id",
    "x-session-id",
    "x-session-affinity",
    "x-claude-code-session-id",
    "x-litellm-session-id",
    "Helicone-Session-Id",
    "agent-session-id",
    "session-id",
    "session_id",
    "conversation_id",
    "x-opencode-session",
    "x-kilo-session",
    "x-kilocode-taskid",
    "x-roo-task-id",
    "x-task-id",
    "x-sm-conversation-id",
    "x-grok-conv-id",
    "X-Some-Agent-Session-Id",
]
FIELDS = ["session_id", "litellm_session_id", "conversation_id"]
WITHIN_METADATA = ["session_id", "conversation_id", "thread_id"]


@given(st.sets(st.integers(0, len(HEADERS) - 1), min_size=1), st.data())
def test_the_most_trusted_header_wins_in_whatever_order_and_case(
    places: set[int], data: st.DataObject
) -> None:
    sent = [(HEADERS[place].encode(), b"id%d" % place) for place in places]
    if data.draw(st.booleans()):
        sent = [(name.upper(), value) for name, value in sent]
    found = of(*data.draw(st.permutations(sent)), body={"session_id": "b"})
    assert found == Conversation(f"id{min(places)}", "client" if min(places) else "header")


@given(st.sets(st.sampled_from(FIELDS)), st.sets(st.sampled_from(WITHIN_METADATA)))
def test_of_the_bodys_fields_the_most_trusted_wins(fields: set[str], within: set[str]) -> None:
    body = {field: f"of {field}" for field in fields}
    metadata = {field: f"within {field}" for field in within}
    ranked = [body[field] for field in FIELDS if field in fields]
    ranked += [metadata[field] for field in WITHIN_METADATA if field in within]
    expected = Conversation(ranked[0], "body") if ranked else BY_CONTENT
    assert of(body=body | {"model": "m", "messages": [], "metadata": metadata}) == expected


@pytest.mark.parametrize(
    "name",
    [
        "x-parent-session-id",
        "X-Opencode-Parent-Session-Id",
        "x-request-id",
        "x-trace-id",
        "traceparent",
        "x-litellm-trace-id",
        "x-client-request-id",
        "user",
        "session",
        "cookie",
        "my-session-id",
        "x-session-ids",
    ],
)
def test_headers_that_name_something_else_are_left_alone(name: str) -> None:
    assert of((name.encode(), b"abc")) == BY_CONTENT


@pytest.mark.parametrize(
    "body",
    [
        {"user": "u", "safety_identifier": "s", "metadata": {"user_id": "u", "trace_id": "t"}},
        {"session_id": 7, "conversation_id": ["a"], "metadata": {"thread_id": {"id": "a"}}},
        {"session_id": "", "conversation_id": " \n", "litellm_session_id": "undefined"},
        {"metadata": "session_id"},
        {"metadata": ["session_id"]},
        {"messages": [{"session_id": "a"}], "tools": [{"conversation_id": "b"}]},
        {"prompt_cache_key": 7},
        {"prompt_cache_key": ""},
        [],
        None,
        "session_id",
    ],
)
def test_bodies_that_do_not_say_are_known_by_how_they_begin(body: object) -> None:
    assert of(body=body) == BY_CONTENT


@pytest.mark.parametrize(
    "body", [b"", b"\x1f\x8b\x08\x00", b'{"session_id":"a"', b"\xff", b'{"session_id":' + b"[" * 100_000]
)
def test_a_body_that_cannot_be_read_is_known_by_the_chain_alone(body: bytes) -> None:
    assert conversation_of([], body, CHAIN) == BY_CONTENT


def test_where_nothing_is_spoken_the_chains_first_value_names_it() -> None:
    assert conversation_of([], b"{}", CHAIN[:1]) == Conversation("content-" + "01" * 16, "content")


def test_what_is_said_later_does_not_change_a_conversations_name() -> None:
    opening: list[object] = [
        {"role": "system", "content": "now 10:00"},
        {"role": "user", "content": "fix it"},
    ]
    later = [{"role": "system", "content": "now 10:05"}, *opening[1:], {"role": "assistant", "content": "ok"}]
    other = [*opening[:1], {"role": "user", "content": "break it"}]
    names = [conversation_of([], b"{}", chain_of(each)).id for each in (opening, later, other)]
    assert names[0] == names[1] != names[2]


def test_a_cache_key_tells_apart_what_begins_alike_and_never_joins_what_does_not() -> None:
    body = b'{"prompt_cache_key":"%b"}'
    one, other = (conversation_of([], body % key, CHAIN) for key in (b"k1", b"k2"))
    elsewhere = conversation_of([], body % b"k1", CHAIN[1:])
    assert {one.source, other.source, elsewhere.source} == {"content"}
    assert len({one.id, other.id, elsewhere.id, BY_CONTENT.id}) == 4


def test_of_a_repeated_header_the_first_that_says_something_counts() -> None:
    name = b"X-Conversation-Id"
    assert of((name, b" "), (name, b"one"), (name, b"two")) == Conversation("one", "header")


@pytest.mark.parametrize("value", [b"", b"  ", b"\t", b"null", b"None", b"undefined"])
def test_a_header_without_an_id_says_nothing(value: bytes) -> None:
    assert of((b"X-Conversation-Id", value)) == BY_CONTENT
    assert of((b"X-Conversation-Id", value), (b"thread-id", b"t")) == Conversation("t", "client")


@pytest.mark.parametrize(
    "value", ["a b/c?d=%20;\"',{}", "x" * LONGEST_ID, "019b2f4e-7c1a-7000-8000-5a1d", "content-12"]
)
def test_a_printable_id_is_taken_as_it_is(value: str) -> None:
    assert of((b"x-session-id", f" {value}\t".encode())).id == value
    assert of(body={"session_id": f"\n{value} "}).id == value


@pytest.mark.parametrize(
    "value",
    ["a\r\nSet-Cookie: b", "a\x00b", "a\x7fb", "caf\u00e9", "\u6771\u4eac", "x" * 10_000, "\U0001f600"],
)
def test_an_id_that_no_header_could_carry_is_named_by_its_digest(value: str) -> None:
    found = of((b"x-session-id", value.encode()))
    assert found.id.startswith("id-")
    assert found.id == of(body={"session_id": value}).id
    assert found.id != of(body={"session_id": value + "."}).id


@given(st.text(), st.binary())
def test_whatever_clients_say_can_be_sent_back_and_means_the_same_when_they_repeat_it(
    in_body: str, in_header: bytes
) -> None:
    raw = json.dumps({"session_id": in_body}).encode()
    for found in (conversation_of([(b"thread-id", in_header)], raw, CHAIN), conversation_of([], raw, CHAIN)):
        assert found.id.isascii()
        assert found.id.isprintable()
        assert 0 < len(found.id) <= LONGEST_ID
        assert of((b"X-Conversation-Id", found.id.encode())) == Conversation(found.id, "header")
