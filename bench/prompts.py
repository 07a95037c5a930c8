"""What was sent and what it costs, as the simulated provider counts, caches and bills it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from typing import Any

import orjson

from proxy.simulator.config import SimulatorConfig
from proxy.simulator.prompt_cache import PromptCache
from proxy.simulator.tokens import PER_REQUEST, TiktokenCounter, message_tokens, tools_tokens

SYSTEM = ("system", "developer")

# In input tokens of the conversation's own model, by list prices of November 2025: a cached token at OpenAI
# and Anthropic, and an input and output token of gpt-4.1-mini beside gpt-4.1.
CACHED_PRICE = 0.1
SUMMARY_INPUT_PRICE = 0.2
SUMMARY_OUTPUT_PRICE = 0.8


@dataclass(frozen=True, slots=True)
class Piece:
    """A message: who speaks, what it is by its content, and its tokens."""

    role: str
    content: bytes
    tokens: int

    @property
    def is_system(self) -> bool:
        return self.role in SYSTEM

    @property
    def is_result(self) -> bool:
        return self.role in ("tool", "function")


@dataclass(frozen=True, slots=True)
class Prompt:
    opening: int  # tokens that stand before the first message: the tools
    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        return self.opening + sum(piece.tokens for piece in self.pieces)

    def must_be_kept(self) -> int:
        """The tokens that no fold may touch: tools, instructions, and the newest user message."""
        newest = next((piece for piece in reversed(self.pieces) if piece.role == "user"), None)
        instructions = sum(piece.tokens for piece in self.pieces if piece.is_system)
        return self.opening + instructions + (newest.tokens if newest else 0)

    def shared_with(self, before: Prompt) -> int:
        """Tokens of the longest beginning that both have, in whole messages."""
        if self.opening != before.opening:
            return 0
        pairs = zip(self.pieces, before.pieces, strict=False)
        return self.opening + sum(one.tokens for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class Ruler:
    """Measures messages as the simulator does."""

    def __init__(self) -> None:
        self._counter = TiktokenCounter()

    def piece(self, message: Mapping[str, Any]) -> Piece:
        content = hashlib.blake2b(orjson.dumps(message), digest_size=16).digest()
        return Piece(message["role"], content, message_tokens(dict(message), self._counter))

    def opening(self, tools: Sequence[Mapping[str, Any]]) -> int:
        return PER_REQUEST + tools_tokens([dict(tool) for tool in tools], self._counter)

    def prompt(self, body: Mapping[str, Any]) -> Prompt:
        opening = self.opening(body.get("tools") or ())
        return Prompt(opening, tuple(map(self.piece, body["messages"])))


@dataclass(frozen=True, slots=True)
class SummaryCall:
    input: int
    output: int
    cached: int = 0  # of the input


@dataclass(frozen=True, slots=True)
class Bill:
    """What one way of sending conversations comes to, in tokens; bills add up."""

    sent: int = 0
    cached: int = 0  # of what was sent, by the provider's word
    followed: int = 0  # what all requests but the last of each conversation had sent …
    reused: int = 0  # … and how much of that the next began with
    calls: int = 0
    call_input: int = 0
    call_cached: int = 0
    call_output: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def reuse(self) -> float:
        return self.reused / self.followed if self.followed else 1.0

    def cost(self, *, caching: bool) -> float:
        """In input tokens. The answers themselves are left out: every way of sending gets the same."""
        discount = 1 - CACHED_PRICE if caching else 0.0
        read = self.call_input - discount * self.call_cached
        written = SUMMARY_OUTPUT_PRICE * self.call_output
        return self.sent - discount * self.cached + SUMMARY_INPUT_PRICE * read + written


def bill(prompts: Sequence[Prompt], calls: Iterable[SummaryCall] = ()) -> Bill:
    """For one conversation, in the order it was sent."""
    calls = list(calls)
    return Bill(
        sent=sum(prompt.tokens for prompt in prompts),
        cached=sum(cached(prompts)),
        followed=sum(prompt.tokens for prompt in prompts[:-1]),
        reused=sum(after.shared_with(before) for before, after in pairwise(prompts)),
        calls=len(calls),
        call_input=sum(call.input for call in calls),
        call_cached=sum(call.cached for call in calls),
        call_output=sum(call.output for call in calls),
    )


def cached(prompts: Iterable[Prompt]) -> list[int]:
    """How much of each the provider has seen before, by the rules of the simulator's prompt cache."""
    cache = PromptCache(SimulatorConfig().cache_min_tokens)
    return [_cached(cache, prompt) for prompt in prompts]


def _cached(cache: PromptCache, prompt: Prompt) -> int:
    if not prompt.pieces:
        return 0
    sizes = list(accumulate((piece.tokens for piece in prompt.pieces), initial=prompt.opening))[1:]
    contents = (piece.content.hex() for piece in prompt.pieces)
    return cache.cached_tokens(b"%d" % prompt.opening, contents, sizes)
