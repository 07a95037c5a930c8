"""Chat completions: what is said, what it costs, and in which shape it goes out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import orjson

from proxy.simulator.answers import Answer, ApiError, event_stream, json_answer
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.prompt_cache import PromptCache
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.tokens import PER_REQUEST, Counter, message_tokens, text_of, tools_tokens
from proxy.simulator.validate import ChatRequest, validated

# A constant clock: the same request gets the same bytes, with or without something in between.
CREATED = 1_750_000_000

CALL_MARKER = re.compile(r"call:([\w-]+)")
ARGUMENT_PIECE = 8


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice; with `n` choices all are alike."""

    pieces: tuple[str, ...]
    calls: tuple[ToolCall, ...]
    tokens: int
    finish_reason: str

    def message(self) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": None if self.calls else "".join(self.pieces),
            "refusal": None,
        }
        if self.calls:
            return {**message, "tool_calls": [_call(call) for call in self.calls]}
        return {**message, "annotations": []}

    def deltas(self) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": None if self.calls else "", "refusal": None}
        for piece in filter(None, self.pieces):
            yield {"content": piece}
        for index, call in enumerate(self.calls):
            opening = {"index": index, **_call(ToolCall(call.id, call.name, ""))}
            yield {"tool_calls": [opening]}
            for start in range(0, len(call.arguments), ARGUMENT_PIECE):
                fragment = call.arguments[start : start + ARGUMENT_PIECE]
                yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


@dataclass(frozen=True, slots=True)
class Usage:
    prompt: int
    cached: int
    completion: int

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


class Chat:
    def __init__(self, config: SimulatorConfig, counter: Counter) -> None:
        self._config = config
        self._counter = counter
        self._cache = PromptCache(config.cache_min_tokens)

    def answer(self, received: ReceivedRequest) -> Answer:
        request = validated(received.json(), self._config)
        sizes = self._prefix_sizes(request)
        check_window(sizes[-1], request.max_answer, self._config.window_of(request.model))
        reply = self._reply(request)
        cached = self._cache.cached_tokens(_cache_owner(received, request), request.messages, sizes)
        usage = Usage(sizes[-1], cached, request.n * reply.tokens)
        if request.stream:
            return event_stream(_events(request, reply, usage), self._config.chunk_delay)
        return json_answer(_completion(request, reply, usage))

    def _prefix_sizes(self, request: ChatRequest) -> list[int]:
        """The prompt's tokens up to the end of each message, as this provider's tokenizer counts them."""
        opening = PER_REQUEST + tools_tokens(request.tools, self._counter)
        counts = (message_tokens(message, self._counter) for message in request.messages)
        return [self._scaled(total) for total in accumulate(counts, initial=opening)][1:]

    def _scaled(self, tokens: int) -> int:
        return round(tokens * self._config.tokenizer_factor)

    def _reply(self, request: ChatRequest) -> Reply:
        if calls := tuple(_requested_calls(request)):
            tokens = sum(
                self._counter.count(call.name) + self._counter.count(call.arguments) for call in calls
            )
            return Reply((), calls, self._scaled(tokens), "tool_calls")
        text = _last_text(request) or "Hello."
        return self._said(self._counter.pieces(text, self._config.answer_tokens), request.max_answer)

    def _said(self, pieces: list[str], limit: int | None) -> Reply:
        allowed = len(pieces) if limit is None else int(limit / self._config.tokenizer_factor)
        finish_reason = "length" if allowed < len(pieces) else "stop"
        said = tuple(pieces[:allowed])
        return Reply(said, (), self._scaled(len(said)), finish_reason)


def check_window(prompt: int, answer: int | None, window: int) -> None:
    """The answer counts only where the client declared it, as with OpenAI."""
    limit = f"This model's maximum context length is {window} tokens. However, "
    if prompt > window:
        text = f"your messages resulted in {prompt} tokens. Please reduce the length of the messages."
    elif answer is not None and prompt + answer > window:
        text = (
            f"you requested {prompt + answer} tokens ({prompt} in the messages, {answer} in the completion). "
            "Please reduce the length of the messages or completion."
        )
    else:
        return
    raise ApiError(limit + text, param="messages", code="context_length_exceeded")


def _cache_owner(received: ReceivedRequest, request: ChatRequest) -> bytes:
    return orjson.dumps([received.credential, request.model, request.tools])


def _last_text(request: ChatRequest) -> str:
    spoken = (message for message in reversed(request.messages) if message["role"] in ("user", "tool"))
    return next(map(text_of, spoken), "")


def _requested_calls(request: ChatRequest) -> Iterator[ToolCall]:
    text = _last_text(request)
    for index, name in enumerate(_called_names(request, text)):
        arguments = orjson.dumps({"text": text[:64]}).decode()
        yield ToolCall(f"call_{_digest(request, f'{index}:{name}')}", name, arguments)


def _called_names(request: ChatRequest, text: str) -> list[str]:
    declared = [tool["function"]["name"] for tool in request.tools if tool.get("type") != "custom"]
    match request.tool_choice:
        case {"function": {"name": str(name)}}:
            return [name]
        case "none":
            return []
        case "required" if declared:
            return [name for name in CALL_MARKER.findall(text) if name in declared] or declared[:1]
        case _ if request.messages[-1]["role"] == "user":
            return [name for name in CALL_MARKER.findall(text) if name in declared]
        case _:
            return []


def _digest(request: ChatRequest, *more: str) -> str:
    seed = orjson.dumps([request.model, len(request.messages), _last_text(request), more])
    return hashlib.blake2b(seed, digest_size=12).hexdigest()


def _envelope(request: ChatRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{_digest(request)}",
        "object": kind,
        "created": CREATED,
        "model": request.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }


def _completion(request: ChatRequest, reply: Reply, usage: Usage) -> dict[str, Any]:
    message = reply.message()
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
        for index in range(request.n)
    ]
    return {**_envelope(request, "chat.completion"), "choices": choices, "usage": usage.as_json()}


def _events(request: ChatRequest, reply: Reply, usage: Usage) -> Iterator[bytes]:
    envelope = _envelope(request, "chat.completion.chunk")
    # OpenAI has the key in every chunk once usage was asked for, and in none otherwise.
    unset: dict[str, Any] = {"usage": None} if request.include_usage else {}
    for choice in _choices(request, reply):
        yield orjson.dumps({**envelope, "choices": [choice], **unset})
    if request.include_usage:
        yield orjson.dumps({**envelope, "choices": [], "usage": usage.as_json()})
    yield b"[DONE]"


def _choices(request: ChatRequest, reply: Reply) -> Iterator[dict[str, Any]]:
    for delta in reply.deltas():
        for index in range(request.n):
            yield {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
    for index in range(request.n):
        yield {"index": index, "delta": {}, "logprobs": None, "finish_reason": reply.finish_reason}
