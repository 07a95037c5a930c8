"""The upstream's fixed answers, ready as bytes, and what a client may therefore see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

_IDENTITY = {
    "id": "chatcmpl-BenchBenchBenchBenchBench00000",
    "created": 1763400000,
    "model": "gpt-4o-2024-08-06",
}
# In place of what a request's own bill says, so that all answers have one length.
_ANY_BILL = 999_999
# Of a body's bytes: a bill far from a request's size would be a lesson to whoever counts.
_TOKENS_PER_BYTE = 0.2728
_OF_THE_ENVELOPE = 11  # tokens that its bytes would be, and that nobody is billed for
_USAGE = {
    "prompt_tokens": _ANY_BILL,
    "completion_tokens": 28,
    "total_tokens": 9148,
    "prompt_tokens_details": {"cached_tokens": 8960, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}
TEXT = (
    "The second run is slow because the cache is keyed by the full path, and the path changes with every "
    "checkout; key it by content."
)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _head(content_type: str, framing: str) -> bytes:
    return (
        "HTTP/1.1 200 OK\r\n"
        "Date: Tue, 18 Nov 2025 09:20:00 GMT\r\n"
        f"Content-Type: {content_type}\r\n"
        f"{framing}\r\n"
        "Connection: keep-alive\r\n"
        "access-control-expose-headers: X-Request-ID\r\n"
        "openai-organization: bench\r\n"
        "openai-processing-ms: 412\r\n"
        "openai-version: 2020-10-01\r\n"
        "x-ratelimit-limit-requests: 10000\r\n"
        "x-ratelimit-limit-tokens: 2000000\r\n"
        "x-ratelimit-remaining-requests: 9999\r\n"
        "x-ratelimit-remaining-tokens: 1990879\r\n"
        "x-ratelimit-reset-requests: 6ms\r\n"
        "x-ratelimit-reset-tokens: 273ms\r\n"
        "x-request-id: req_0123456789abcdef0123456789abcdef\r\n"
        "strict-transport-security: max-age=31536000; includeSubDomains; preload\r\n"
        "x-content-type-options: nosniff\r\n"
        "Server: cloudflare\r\n"
        "\r\n"
    ).encode()


ANSWER_BODY = _json(
    {
        **_IDENTITY,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "refusal": None,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }
)
ANSWER = _head("application/json", f"Content-Length: {len(ANSWER_BODY)}") + ANSWER_BODY


def billed(answer: bytes, size: int) -> bytes:
    """The answer with a bill that suits a request body of this size."""
    bill = max(1, round(size * _TOKENS_PER_BYTE) - _OF_THE_ENVELOPE)
    return answer.replace(b"%d" % _ANY_BILL, b"%6d" % bill)


@dataclass(frozen=True, slots=True)
class EventStream:
    """An SSE answer: the head with the first event, then the others one by one, each an HTTP chunk."""

    opening: bytes
    following: tuple[bytes, ...]


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _events(*, with_usage: bool) -> list[bytes]:
    """As OpenAI does it: a stream with usage has `"usage":null` in every chunk but the last."""
    no_usage_yet = {"usage": None} if with_usage else {}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": f" {word}"}, None) for word in TEXT.split()]
    deltas += [({}, "stop")]
    events = [_chunk([_choice(delta, reason)], no_usage_yet) for delta, reason in deltas]
    if with_usage:
        events.append(_chunk([], {"usage": _USAGE}))
    return [*events, _event(b"[DONE]")]


def _choice(delta: dict[str, str], finish_reason: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _chunk(choices: list[dict[str, object]], usage: Mapping[str, object]) -> bytes:
    envelope = {**_IDENTITY, "object": "chat.completion.chunk", "system_fingerprint": "fp_0123456789"}
    return _event(_json({**envelope, "choices": choices, **usage}))


def _stream(events: list[bytes]) -> EventStream:
    chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
    head = _head("text/event-stream; charset=utf-8", "Transfer-Encoding: chunked")
    return EventStream(head + chunks[0], (*chunks[1:], b"0\r\n\r\n"))


_PLAIN_EVENTS = _events(with_usage=False)
_USAGE_EVENTS = _events(with_usage=True)

PLAIN_STREAM = _stream(_PLAIN_EVENTS)
USAGE_STREAM = _stream(_USAGE_EVENTS)
EVENTS_IN_A_STREAM = len(_PLAIN_EVENTS)

# A proxy may ask for usage on its own behalf; what it asked for is then not for the client to see.
_USAGE_TAKEN_OUT = _USAGE_EVENTS[:-2] + _USAGE_EVENTS[-1:]

ACCEPTABLE_STREAMS = frozenset({b"".join(_PLAIN_EVENTS), b"".join(_USAGE_TAKEN_OUT)})
