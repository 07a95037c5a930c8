"""Chat completions: what is said, what it costs, and in which shape it goes out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import orjson

from proxy.simulator.answers import Answer, ApiError, event_stream, json_answer
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.prompt_cache import PromptCache
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.reply import Reply, ToolCall, calling, saying
from proxy.simulator.summaries import SummaryModel, asks_for_a_summary
from proxy.simulator.tokens import PER_REQUEST, Counter, message_tokens, text_of, tools_tokens
from proxy.simulator.validate import ChatRequest, validated
from proxy.simulator.window import (
    check_answer,
    check_window,
    in_other_words,
    newest_that_fit,
    without_numbers,
)

# A constant clock: the same request gets the same bytes, with or without something in between.
CREATED = 1_750_000_000

CALL_MARKER = re.compile(r"call:([\w-]+)")


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
    def __init__(self, config: SimulatorConfig, counter: Counter, summaries: SummaryModel) -> None:
        self._config = config
        self._counter = counter
        self._summaries = summaries
        self._cache = PromptCache(config.cache_min_tokens)

    def answer(self, received: ReceivedRequest) -> Answer:
        request = validated(received.json(), self._config)
        check_answer(request.max_answer, self._config.longest_answers.get(request.model))
        try:
            request, sizes = self._read(request)
        except ApiError as too_long:
            return self._refusal(too_long, request)
        reply = self._reply(request)
        cached = self._cache.cached_tokens(_cache_owner(received, request), request.messages, sizes)
        usage = self._billed(sizes[-1], cached, request.n * self._scaled(reply.tokens))
        if request.stream:
            return event_stream(_events(request, reply, usage), self._config.chunk_delay)
        return json_answer(_completion(request, reply, usage))

    def _billed(self, prompt: int, cached: int, completion: int) -> Usage:
        if self._config.cache_is_billed == "within":
            return Usage(prompt, cached, completion)
        told = cached if self._config.cache_is_billed == "beside" else 0
        return Usage(prompt - cached, told, completion)

    def _read(self, request: ChatRequest) -> tuple[ChatRequest, list[int]]:
        """As much of the request as the model sees, and the prompt's tokens up to each message's end."""
        opening, *sizes = self._prefix_sizes(request)
        window = self._config.window_of(request.model)
        if self._config.overflow != "truncate":
            check_window(sizes[-1], None if self._config.caps_answers else request.max_answer, window)
            return request, sizes
        newest = replace(request, messages=newest_that_fit(request.messages, [opening, *sizes], window))
        return newest, [min(size, window) for size in self._prefix_sizes(newest)[1:]]

    def _refusal(self, too_long: ApiError, request: ChatRequest) -> Answer:
        """By its status, or as gateways do that have answered 200 before they asked the model."""
        if self._config.overflow == "status":
            return too_long.answer()
        if self._config.overflow == "words":
            return in_other_words(too_long).answer()
        if self._config.overflow == "nameless":
            return without_numbers().answer()
        error = {"error": too_long.error}
        if not request.stream:
            return json_answer(error)
        return event_stream([orjson.dumps(error), b"[DONE]"], self._config.chunk_delay)

    def _prefix_sizes(self, request: ChatRequest) -> list[int]:
        """The prompt's tokens before the first message and up to the end of each, as this provider counts."""
        opening = PER_REQUEST + tools_tokens(request.tools, self._counter)
        counts = (message_tokens(message, self._counter) for message in request.messages)
        return [self._scaled(total) for total in accumulate(counts, initial=opening)]

    def _scaled(self, tokens: int) -> int:
        return round(tokens * self._config.tokenizer_factor)

    def _reply(self, request: ChatRequest) -> Reply:
        if asks_for_a_summary(request.messages):
            return self._summaries.reply(request)
        if calls := tuple(_requested_calls(request)):
            return calling(calls, self._counter)
        text = _last_text(request) or "Hello."
        pieces = self._counter.pieces(text, self._config.answer_tokens)
        return saying(pieces, self._config.answer_limit(request.max_answer))


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
