"""How many tokens the simulated provider counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from proxy.counting import vocabularies

if TYPE_CHECKING:
    import tiktoken

    from proxy.simulator.config import SimulatorConfig

Message = dict[str, Any]

PER_MESSAGE = 3
PER_NAME = 1
PER_REQUEST = 3
PER_IMAGE = {"low": 85, "high": 765}
PER_TOOL_LIST = 12
PER_TOOL = 7
PER_PROPERTY = 3


class Counter(Protocol):
    def count(self, text: str) -> int: ...

    def pieces(self, text: str, limit: int) -> list[str]:
        """The text's first tokens as text, at most `limit` of them."""
        ...


class RoughCounter:
    """Four characters are a token: costs nothing, so a benchmark measures the proxy and not the upstream."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)

    def pieces(self, text: str, limit: int) -> list[str]:
        return [text[start : start + 4] for start in range(0, min(len(text), 4 * limit), 4)]


class TiktokenCounter:
    """o200k_base, loaded at first use and never from the network."""

    # tiktoken overflows its stack on a run of a million spaces; slices of this size it takes.
    slice_size = 65_536

    def __init__(self) -> None:
        self.count = lru_cache(maxsize=8192)(self._count)

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        return vocabularies.load("o200k_base")

    def _count(self, text: str) -> int:
        return sum(len(self._encoding.encode_ordinary(part)) for part in self._slices(text))

    def _slices(self, text: str) -> Iterator[str]:
        return (text[start : start + self.slice_size] for start in range(0, len(text), self.slice_size))

    def pieces(self, text: str, limit: int) -> list[str]:
        tokens = self._encoding.encode_ordinary(text[: min(16 * limit, self.slice_size)])[:limit]
        return list(_whole_characters(map(self._encoding.decode_single_token_bytes, tokens)))


def _whole_characters(tokens: Iterable[bytes]) -> Iterator[str]:
    """Token texts; a character spread over several tokens comes with the last of them, as from OpenAI."""
    pending = b""
    for token in tokens:
        pending += token
        try:
            text = pending.decode()
        except UnicodeDecodeError:
            yield ""
        else:
            pending = b""
            yield text


def counter_for(config: SimulatorConfig) -> Counter:
    return TiktokenCounter() if config.counting == "tiktoken" else RoughCounter()


def message_tokens(message: Message, counter: Counter) -> int:
    content = message.get("content")
    if len(message) == 2 and isinstance(content, str):  # nearly every message: nothing else to look for
        return PER_MESSAGE + counter.count(message["role"]) + counter.count(content)
    named = PER_NAME if message.get("name") else 0
    return PER_MESSAGE + named + sum(map(counter.count, _texts(message))) + _media_tokens(message)


def _texts(message: Message) -> Iterator[str]:
    yield message["role"]
    for key in ("name", "tool_call_id", "refusal"):
        if isinstance(message.get(key), str):
            yield message[key]
    yield text_of(message)
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield from (
            str(call.get("id", "")),
            str(function.get("name", "")),
            str(function.get("arguments", "")),
        )


def text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in _parts(content) if "text" in part)


def _media_tokens(message: Message) -> int:
    images = (part.get("image_url") for part in _parts(message.get("content")))
    details = (image.get("detail") for image in images if isinstance(image, dict))
    return sum(PER_IMAGE["low" if detail == "low" else "high"] for detail in details)


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    return (part for part in content if isinstance(part, dict)) if isinstance(content, list) else iter(())


def tools_tokens(tools: list[dict[str, Any]], counter: Counter) -> int:
    once = PER_TOOL_LIST if tools else 0
    return once + sum(_function_tokens(_object(tool, "function"), counter) for tool in tools)


def _function_tokens(function: dict[str, Any], counter: Counter) -> int:
    own = PER_TOOL + counter.count(f"{function.get('name')}:{function.get('description', '')}")
    properties = _object(_object(function, "parameters"), "properties")
    if not properties:
        return own
    return own + PER_PROPERTY + sum(_property_tokens(name, properties, counter) for name in properties)


def _property_tokens(name: str, properties: dict[str, Any], counter: Counter) -> int:
    schema = _object(properties, name)
    own = PER_PROPERTY + counter.count(f"{name}:{schema.get('type', '')}:{schema.get('description', '')}")
    choices = schema.get("enum")
    if not isinstance(choices, list) or not choices:
        return own
    return own - 3 + sum(3 + counter.count(str(choice)) for choice in choices)


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """A schema may have `true` where an object is usual; it is then as good as empty."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
