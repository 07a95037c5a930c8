from __future__ import annotations

import json

import pytest
from hypothesis import given

from proxy.fold.history import History
from tests.fold.chats import chat, valid_histories
from tests.fold.validator import Message, faults, user_speaks_first


def messages_of(past: History) -> list[Message]:
    return [json.loads(turn.raw) for turn in past.turns]


@given(valid_histories)
def test_the_random_histories_that_are_called_valid_are(past: History) -> None:
    assert faults(messages_of(past)) == []


@pytest.mark.parametrize("line", ["u", "s d u i a", "u c t a", "u c3 t t t c t a u", "u f r f r a"])
def test_a_valid_conversation_has_no_faults(line: str) -> None:
    assert faults(messages_of(chat(line))) == []


@pytest.mark.parametrize(
    "line",
    ["", "u c", "u c2 t a", "u c a t", "u c s t", "u c c t t", "u x", "u f", "u f a", "r u", "u f r r"],
)
def test_a_broken_one_is_found_out(line: str) -> None:
    assert faults(messages_of(chat(line))) != []


def test_what_is_no_message_is_found_out() -> None:
    assert faults([{"role": "narrator", "content": "Once"}]) != []
    assert faults([{"role": "user", "content": None}]) != []
    assert faults([{"role": "assistant", "content": None, "tool_calls": []}]) != []


def test_knows_who_speaks_first() -> None:
    assert user_speaks_first(messages_of(chat("s d u a")))
    assert not user_speaks_first(messages_of(chat("s a u")))
    assert not user_speaks_first(messages_of(chat("s")))
