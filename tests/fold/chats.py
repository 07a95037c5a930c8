"""Histories in a line: `chat("s u c2 t t a u:900")`, and any number of random ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from hypothesis import strategies as st

from proxy.fold.history import History, Turn, history
from proxy.messages import ChatRequest, read

TENANT = b"tenant"
USUAL_TOKENS = 10

ROLES = {"s": "system", "d": "developer", "u": "user", "i": "user", "a": "assistant"}
ROLES |= {"c": "assistant", "t": "tool", "x": "tool", "f": "assistant", "r": "function"}


def chat(line: str) -> History:
    """Each word is a message, with its tokens after a colon.

    s system, d developer, u user, i user with an image, a assistant, c a tool call (c3: three at once), t the
    result of the next call that has none, x the result of a call that nobody made, f a legacy function call,
    r its result.
    """
    return history(turns(line), TENANT)


def turns(line: str) -> list[Turn]:
    open_calls: list[str] = []
    return [_turn(word, place, open_calls) for place, word in enumerate(line.split())]


def _turn(word: str, place: int, open_calls: list[str]) -> Turn:
    kind, _, tokens = word.partition(":")
    letter, count = kind[0], int(kind[1:] or 1)
    says = f"{kind} at {place}"
    made = Turn(b"", ROLES[letter], b"", int(tokens or USUAL_TOKENS))
    match letter:
        case "c":
            calls = tuple(f"call_{place}_{number}" for number in range(count))
            open_calls.extend(calls)
            return calling(made, calls)
        case "t":
            return answering(made, open_calls.pop(0), says)
        case "x":
            return answering(made, f"nobody_{place}", says)
        case "f":
            return calling_a_function(made, f"function_{place}")
        case "r":
            return answering_as_a_function(made, f"function_{place - 1}", says)
        case "i":
            return with_an_image(made, says)
        case _:
            return saying(made, says)


def saying(turn: Turn, text: str) -> Turn:
    return _written(turn, {"role": turn.role, "content": text})


def with_an_image(turn: Turn, text: str) -> Turn:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    return _written(turn, {"role": turn.role, "content": [{"type": "text", "text": text}, image]})


def calling(turn: Turn, ids: tuple[str, ...]) -> Turn:
    calls = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return _written(replace(turn, role="assistant", calls=ids), message)


def answering(turn: Turn, id: str, text: str) -> Turn:
    message = {"role": "tool", "tool_call_id": id, "content": text}
    return _written(replace(turn, role="tool", answers=id), message)


def calling_a_function(turn: Turn, name: str) -> Turn:
    message = {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}
    return _written(replace(turn, role="assistant", calls=(name,)), message)


def answering_as_a_function(turn: Turn, name: str, text: str) -> Turn:
    message = {"role": "function", "name": name, "content": text}
    return _written(replace(turn, role="function", answers=name), message)


def _written(turn: Turn, message: dict[str, Any]) -> Turn:
    raw = json.dumps(message).encode()
    return replace(turn, raw=raw, identity=blake2b(raw, digest_size=16).digest())


def request_of(past: History) -> ChatRequest:
    return read(body_of(past), compressed=False)


def body_of(past: History) -> bytes:
    """As clients write it, with spaces of their own and numbers that no parser keeps."""
    messages = b" ,\n ".join(turn.raw for turn in past.turns)
    return b'{"model": "m", "seed": 123456789012345678901234567890, "messages": [ %b ] , "n":1 }' % messages


texts = st.sampled_from(["", "yes", 'a "quoted" \\ word', "]}, {[", "größer 😀", "<|endoftext|>", "x" * 500])
# One in twenty is large enough to change everything.
tokens = st.sampled_from([*range(1, 400, 10), 2_500, 20_000])


@st.composite
def groups(draw: st.DrawFn) -> list[Turn]:
    """What is said in one go, with its results if it calls for any. Valid to the strictest server."""
    kind = draw(st.sampled_from("suuuuaaaacccccdifi"))
    made = Turn(b"", ROLES[kind], b"", draw(tokens))
    match kind:
        case "c":
            return draw(_tool_groups(made))
        case "f":
            name = draw(st.sampled_from(["look", "write"]))
            result = answering_as_a_function(replace(made, tokens=draw(tokens)), name, draw(texts))
            return [calling_a_function(made, name), result]
        case "i":
            return [with_an_image(made, draw(texts))]
        case _:
            return [saying(made, draw(texts))]


@st.composite
def _tool_groups(draw: st.DrawFn, made: Turn) -> list[Turn]:
    """Ids are used again, as by servers that count them from nought in each answer; results in any order."""
    ids = tuple(f"call_{number}" for number in range(draw(st.integers(1, 4))))
    results = [
        answering(replace(made, tokens=draw(tokens)), id, draw(texts)) for id in draw(st.permutations(ids))
    ]
    return [calling(made, ids), *results]


@st.composite
def malformed(draw: st.DrawFn) -> list[Turn]:
    """Results that nobody asked for, calls left open, ids that are there twice."""
    kind = draw(st.sampled_from("ctxfr"))
    made = Turn(b"", ROLES[kind], b"", draw(tokens))
    ids = st.sampled_from(["call_0", "call_1", "look", ""])
    match kind:
        case "c":
            return [calling(made, tuple(draw(st.lists(ids, max_size=3))))]
        case "f":
            return [calling_a_function(made, draw(ids))]
        case "r":
            return [answering_as_a_function(made, draw(ids), "")]
        case _:
            return [answering(made, draw(ids), "")]


def joined(parts: Sequence[Sequence[Turn]]) -> list[Turn]:
    return [turn for part in parts for turn in part]


valid_histories = st.lists(groups(), min_size=1, max_size=30).map(
    lambda parts: history(joined(parts), TENANT)
)
any_histories = st.lists(groups() | malformed(), max_size=30).map(
    lambda parts: history(joined(parts), TENANT)
)
