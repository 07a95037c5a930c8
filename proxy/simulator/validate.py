"""What OpenAI refuses in a chat request, in its own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.simulator.answers import ApiError
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.template import check_template, check_turns

Message = dict[str, Any]

MOST_CHOICES = 128

ROLES = ("system", "assistant", "user", "function", "tool", "developer")

PARAMETERS = frozenset(
    (
        *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs"),
        *("max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model", "moderation"),
        *("n", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format"),
        *("safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options"),
        *("temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity"),
        "web_search_options",
    )
)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: str
    messages: list[Message]
    tools: list[dict[str, Any]]
    tool_choice: Any
    n: int
    max_answer: int | None
    stream: bool
    include_usage: bool


def validated(value: Any, config: SimulatorConfig) -> ChatRequest:
    if not isinstance(value, dict):
        raise ApiError("We expected a JSON object as the body of your request.")
    _refuse_unknown(value, config)
    options = _stream_options(value)
    return ChatRequest(
        model=_model(value, config),
        messages=_messages(value, config),
        tools=_tools(value),
        tool_choice=value.get("tool_choice"),
        n=_choices(value),
        max_answer=_max_answer(value),
        stream=value.get("stream") is True,
        include_usage=options.get("include_usage") is True,
    )


def unknown_parameter(name: str) -> ApiError:
    return ApiError(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def _refuse_unknown(value: dict[str, Any], config: SimulatorConfig) -> None:
    if config.refuses_stream_options and "stream_options" in value:
        raise unknown_parameter("stream_options")
    if config.refuses_unknown_parameters and (unknown := value.keys() - PARAMETERS):
        raise unknown_parameter(min(unknown))


def _model(value: dict[str, Any], config: SimulatorConfig) -> str:
    model = value.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError("you must provide a model parameter")
    if not (config.any_model or model in config.model_names or model.startswith("fault:")):
        raise model_not_found(model)
    return model


def model_not_found(model: str) -> ApiError:
    text = f"The model `{model}` does not exist or you do not have access to it."
    return ApiError(text, status=404, param="model", code="model_not_found")


def _stream_options(value: dict[str, Any]) -> dict[str, Any]:
    options = value.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise wrong_type("stream_options", "an object")
    if value.get("stream") is not True:
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise ApiError(text, param="stream_options")
    return options


def _max_answer(value: dict[str, Any]) -> int | None:
    old, new = _whole_number(value, "max_tokens"), _whole_number(value, "max_completion_tokens")
    if old is not None and new is not None:
        text = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise ApiError(text, param="max_tokens", code="invalid_parameter_combination")
    return old if new is None else new


def _whole_number(value: dict[str, Any], name: str) -> int | None:
    number = value.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise wrong_type(name, "an integer")
    if number < 1:
        text = (
            f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {number} instead."
        )
        raise ApiError(text, param=name, code="integer_below_min_value")
    return number


def _choices(value: dict[str, Any]) -> int:
    wanted = _whole_number(value, "n") or 1
    if wanted > MOST_CHOICES:
        text = f"Invalid 'n': integer above maximum value. Expected a value <= {MOST_CHOICES}."
        raise ApiError(text, param="n", code="integer_above_max_value")
    return wanted


def _tools(value: dict[str, Any]) -> list[dict[str, Any]]:
    tools = _list_of_objects(value, "tools")
    _refuse_depth(tools, "tools")
    for index, tool in enumerate(tools):
        match tool:
            case {"function": {"name": str()}} | {"type": "custom"}:
                continue
            case _:
                text = f"Missing required parameter: 'tools[{index}].function'."
                raise ApiError(text, param=f"tools[{index}].function", code="missing_required_parameter")
    return tools


def _list_of_objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = value.get(name)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise wrong_type(name, "an array of objects")
    return items


def _refuse_depth(items: list[Any], name: str) -> None:
    """More can be read than can be written again, which is what the prompt cache does with it."""
    if not items:  # as in nearly every message
        return
    try:
        orjson.dumps([[items]])
    except orjson.JSONEncodeError:
        text = f"Invalid '{name}': nested too deeply."
        raise ApiError(text, param=name, code="invalid_value") from None


def wrong_type(name: str, expected: str) -> ApiError:
    text = f"Invalid type for '{name}': expected {expected}, but got something else instead."
    return ApiError(text, param=name, code="invalid_type")


def _messages(value: dict[str, Any], config: SimulatorConfig) -> list[Message]:
    if value.get("messages") is None:
        text = "Missing required parameter: 'messages'."
        raise ApiError(text, param="messages", code="missing_required_parameter")
    messages = _list_of_objects(value, "messages")
    if not messages:
        text = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        raise ApiError(text, param="messages", code="empty_array")
    for index, message in enumerate(messages):
        _check_message(message, index)
        _refuse_depth([part for part in message.values() if isinstance(part, list | dict)], "messages")
    _check_tool_pairs(messages)
    if config.strict_template:
        check_template(messages)
    if config.alternating_template:
        check_turns(messages)
    return messages


def _check_message(message: Message, index: int) -> None:
    if message.get("role") not in ROLES:
        supported = ", ".join(f"'{role}'" for role in ROLES)
        text = f"Invalid value: {message.get('role')!r}. Supported values are: {supported}."
        raise ApiError(text, param=f"messages[{index}].role", code="invalid_value")
    content = message.get("content")
    speechless = content is None and message["role"] in ("assistant", "function")
    if not (speechless or isinstance(content, str | list)):
        text = f"Invalid value for 'content': expected a string, got {_json_type(content)}."
        raise ApiError(text, param=f"messages.[{index}].content")
    if "tool_calls" in message:
        _check_calls(message, index)


def _check_calls(message: Message, index: int) -> None:
    for call in _list_of_objects(message, "tool_calls"):
        if not isinstance(call.get("id"), str) or not isinstance(call.get("function"), dict):
            raise wrong_type(f"messages[{index}].tool_calls", "calls with an id and a function")


def _json_type(value: Any) -> str:
    return "null" if value is None else "object" if isinstance(value, dict) else type(value).__name__


def _check_tool_pairs(messages: list[Message]) -> None:
    """A call is answered, each id once, before anything else is said; nothing else is an answer."""
    called: set[str] = set()
    unanswered: dict[str, None] = {}
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            _check_tool_result(message, index, called)
            unanswered.pop(message["tool_call_id"], None)
            continue
        _refuse_unanswered(unanswered, index)
        unanswered = dict.fromkeys(call["id"] for call in message.get("tool_calls") or ())
        called = set(unanswered)
    _refuse_unanswered(unanswered, len(messages) - 1)


def _check_tool_result(message: Message, index: int, called: set[str]) -> None:
    if not called:
        text = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise ApiError(f"Invalid parameter: {text}", param=f"messages.[{index}].role")
    answered = message.get("tool_call_id")
    if not isinstance(answered, str) or answered not in called:
        text = f"'tool_call_id' of '{answered}' not found in 'tool_calls' of previous message."
        raise ApiError(f"Invalid parameter: {text}", param=f"messages.[{index}].tool_call_id")


def _refuse_unanswered(ids: Iterable[str], index: int) -> None:
    if missing := ", ".join(ids):
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {missing}"
        )
        raise ApiError(text, param=f"messages.[{index}].role")
