from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator import SimulatorConfig
from proxy.simulator.answers import ApiError
from proxy.simulator.validate import validated
from tests.simulator.talk import Message, assistant, calls, chat, result, user


def refused(value: Any, config: SimulatorConfig | None = None) -> dict[str, Any]:
    with pytest.raises(ApiError) as error:
        validated(value, config or SimulatorConfig())
    assert error.value.status == 400
    return error.value.error


@pytest.mark.parametrize(
    "messages",
    [
        [user("q")],
        [user("q"), calls("a"), result("a")],
        [user("q"), calls("a", "b"), result("b"), result("a"), assistant("so")],
        [user("q"), calls("a"), result("a"), calls("b"), result("b"), user("q")],
    ],
)
def test_accepts_valid_tool_pairs(messages: list[Message]) -> None:
    assert validated(chat(*messages), SimulatorConfig()).messages == messages


@pytest.mark.parametrize(
    "messages",
    [[result("a")], [user("q"), result("a")], [user("q"), calls("a"), result("a"), user("q"), result("a")]],
)
def test_refuses_a_tool_result_without_a_call(messages: list[Message]) -> None:
    text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
    assert text in refused(chat(*messages))["message"]


def test_refuses_a_tool_result_with_a_foreign_id() -> None:
    error = refused(chat(user("q"), calls("a"), result("b")))
    assert "'tool_call_id' of 'b' not found" in error["message"]
    assert error["param"] == "messages.[2].tool_call_id"


@pytest.mark.parametrize("after", [[], [user("next")], [calls("c"), result("c")]])
def test_refuses_calls_that_nobody_answered(after: list[Message]) -> None:
    text = refused(chat(user("q"), calls("a", "b", "x"), result("b"), *after))["message"]
    assert text == (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: a, x"
    )


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        ({"model": "m"}, "messages", "missing_required_parameter"),
        (chat(), "messages", "empty_array"),
        ({"model": "m", "messages": "hi"}, "messages", "invalid_type"),
        (chat({"role": "robot", "content": "hi"}), "messages[0].role", "invalid_value"),
        (chat({"role": "user", "content": None}), "messages.[0].content", None),
        (chat({"role": "user", "content": {}}), "messages.[0].content", None),
        (chat({**assistant("hi"), "tool_calls": [{"id": 1}]}), "messages[0].tool_calls", "invalid_type"),
        (chat(user("hi"), n=0), "n", "integer_below_min_value"),
        (chat(user("hi"), max_tokens="9"), "max_tokens", "invalid_type"),
        (
            chat(user("hi"), max_tokens=9, max_completion_tokens=9),
            "max_tokens",
            "invalid_parameter_combination",
        ),
        (chat(user("hi"), colour="red"), "colour", "unknown_parameter"),
        (chat(user("hi"), stream_options={"include_usage": True}), "stream_options", None),
        (chat(user("hi"), stream=True, stream_options=[]), "stream_options", "invalid_type"),
        (chat(user("hi"), model=""), None, None),
        ([], None, None),
    ],
)
def test_names_the_wrong_parameter(value: Any, param: str | None, code: str | None) -> None:
    error = refused(value)
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")


def test_can_be_told_to_know_no_stream_options() -> None:
    value = chat(user("hi"), stream=True, stream_options={"include_usage": True})
    error = refused(value, SimulatorConfig(refuses_stream_options=True))
    assert error["message"] == "Unknown parameter: 'stream_options'."


def test_can_be_told_to_take_unknown_parameters() -> None:
    assert validated(chat(user("hi"), colour="red"), SimulatorConfig(refuses_unknown_parameters=False))
