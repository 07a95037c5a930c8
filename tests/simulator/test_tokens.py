from __future__ import annotations

import pytest

from proxy.simulator.tokens import (
    Counter,
    RoughCounter,
    TiktokenCounter,
    message_tokens,
    text_of,
    tools_tokens,
)
from tests.simulator.talk import calls, result, tool, user

EXACT = TiktokenCounter()


@pytest.mark.parametrize("counter", [EXACT, RoughCounter()])
@pytest.mark.parametrize("text", ["", "hello there", "世界 🦊🦊", "<|endoftext|>", "x" * 999])
def test_pieces_are_the_text_and_as_many_as_counted(counter: Counter, text: str) -> None:
    pieces = counter.pieces(text, 1000)
    assert "".join(pieces) == text
    assert len(pieces) == counter.count(text)
    assert counter.pieces(text, 1) == pieces[:1]


def test_counts_a_run_that_tiktoken_alone_would_not_survive() -> None:
    assert EXACT.count(" " * 1_000_000) > 0


def test_media_is_not_counted_as_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    text = {"type": "text", "text": "what is this"}
    message = {"role": "user", "content": [text, picture]}
    assert text_of(message) == "what is this"
    assert message_tokens(message, EXACT) == message_tokens(user("what is this"), EXACT) + 765


def test_calls_and_results_are_counted() -> None:
    assert message_tokens(calls("a"), EXACT) < message_tokens(calls("a", "b"), EXACT)
    assert message_tokens(result("a", "x"), EXACT) > message_tokens(user("x"), EXACT)


def test_tools_cost_what_openai_takes_for_them() -> None:
    function = 7 + EXACT.count("look:looks")
    properties = 3 + 3 + EXACT.count("text:string:what to look for")
    choices = (3 + 1) + (3 + 1) - 3
    assert tools_tokens([tool("look")], EXACT) == function + properties + choices + 12
    assert tools_tokens([], EXACT) == 0
