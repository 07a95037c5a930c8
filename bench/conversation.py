"""Chat requests as the openai SDK sends them, of a chosen size."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache

from bench.answers import ACCEPTABLE_STREAMS, ANSWER_BODY, TEXT, billed

# A proxy may remember what it has seen: several conversations keep one lucky body from speaking for all.
VARIANTS = 8

# Asks the upstream to wait between the events of a stream, as a model does.
PAUSE_HEADER = "x-bench-pause-ms"

_MESSAGE_SIZE = 1024
_ENVELOPE_SIZE = 50  # of a request, and of a message

# What chats are made of: prose, code, paths, JSON inside JSON, other scripts. As in the SDK's own encoding,
# quotes, backslashes and line ends are escaped, the rest is UTF-8.
_PHRASES = (
    "Could you look at why the import is slow on the second run?",
    "The cache is cold at first, so compare like with like.",
    'def fold(messages: list[str]) -> str:\n    return "\\n".join(messages)\n',
    '{"path": "C:\\\\Users\\\\me\\\\notes.txt", "ok": true}',
    'Traceback (most recent call last):\n\tFile "app.py", line 12, in <module>\n',
    "Grüße aus Köln, ça va très bien — naïve façade.",
    "数据库连接超时、请稍后再试。",
    "The build is green 🎉 and the tests take 41.7 s.",
    "| column | value |\n|---|---|\n| rows | 1,024 |\n",
    "See https://example.org/docs?page=2&sort=asc#top for the details.",
    "$ grep -rn 'TODO' src/ | wc -l\n17\n",
    "I would rather keep the old behaviour until the next release.",
)

_HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\n"
    "Host: 127.0.0.1:{port}\r\n"
    "Accept-Encoding: gzip, deflate, br\r\n"
    "Connection: keep-alive\r\n"
    "Authorization: Bearer sk-bench-0123456789abcdefghijklmnopqrstuvwxyz\r\n"
    "Accept: application/json\r\n"
    "Content-Type: application/json\r\n"
    "User-Agent: AsyncOpenAI/Python 2.54.0\r\n"
    "X-Stainless-Lang: python\r\n"
    "X-Stainless-Package-Version: 2.54.0\r\n"
    "X-Stainless-OS: Linux\r\n"
    "X-Stainless-Arch: x64\r\n"
    "X-Stainless-Runtime: CPython\r\n"
    "X-Stainless-Runtime-Version: 3.11.7\r\n"
    "X-Stainless-Async: async:asyncio\r\n"
    "x-stainless-retry-count: 0\r\n"
    "x-stainless-read-timeout: 600\r\n"
    "{pause}"
    "Content-Length: {length}\r\n"
    "\r\n"
)


@dataclass(frozen=True, slots=True)
class Request:
    wire: bytes
    answers: frozenset[bytes]  # the bodies that may come back


def chat_requests(port: int, kilobytes: int, *, stream: bool, pause_ms: int = 0) -> list[Request]:
    """Whole HTTP requests, each with another conversation of about this size."""
    bodies = (chat_body(kilobytes, variant, stream=stream) for variant in range(VARIANTS))
    return [_request(port, body, stream=stream, pause_ms=pause_ms) for body in bodies]


def growing_requests(port: int, kilobytes: int, turns: int, name: str) -> list[Request]:
    """One conversation as an agent sends it: every request is the one before, its answer, and something new
    of about this size.
    """
    chance = random.Random(name)
    messages = [_encoded("system", "You are a careful engineer.")]
    requests = []
    for _ in range(turns):
        messages.append(_encoded("user", text(chance, kilobytes * 1024 - _ENVELOPE_SIZE)))
        requests.append(_request(port, _body(b",".join(messages), stream=False), stream=False))
        messages.append(_encoded("assistant", TEXT))
    return requests


def _request(port: int, body: bytes, *, stream: bool, pause_ms: int = 0) -> Request:
    pause = f"{PAUSE_HEADER}: {pause_ms}\r\n" if pause_ms else ""
    head = _HEAD.format(port=port, pause=pause, length=len(body)).encode()
    return Request(head + body, ACCEPTABLE_STREAMS if stream else frozenset({billed(ANSWER_BODY, len(body))}))


def chat_body(kilobytes: int, variant: int, *, stream: bool) -> bytes:
    return _body(_messages(kilobytes, variant), stream=stream)


def _body(messages: bytes, *, stream: bool) -> bytes:
    switches = b',"stream":true' if stream else b""
    return b'{"messages":[%s],"model":"gpt-4o"%s,"temperature":0.2}' % (messages, switches)


@cache
def _messages(kilobytes: int, variant: int) -> bytes:
    """JSON of a system message and as many turns as fit, separated by commas."""
    chance = random.Random(f"{kilobytes}/{variant}")
    missing = kilobytes * 1024 - _ENVELOPE_SIZE
    messages = [_encoded("system", "You are a careful engineer.")]
    while (missing := missing - len(messages[-1]) - 1) > _ENVELOPE_SIZE:
        role = "user" if len(messages) % 2 else "assistant"
        messages.append(_encoded(role, text(chance, min(missing, _MESSAGE_SIZE) - _ENVELOPE_SIZE)))
    return b",".join(messages)


def text(chance: random.Random, size: int) -> str:
    """Phrases of about this size together, once they are escaped."""
    phrases = [f"[{chance.getrandbits(32):08x}]"]
    while size > 0:
        phrases.append(chance.choice(_PHRASES))
        size -= _escaped_size(phrases[-1])
    return " ".join(phrases)


@cache
def _escaped_size(phrase: str) -> int:
    return len(json.dumps(phrase, ensure_ascii=False).encode())


def _encoded(role: str, content: str) -> bytes:
    return json.dumps({"role": role, "content": content}, ensure_ascii=False, separators=(",", ":")).encode()
