"""The provider's prompt cache: which prefixes, in whole messages, it has seen before."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

GRANULARITY = 128
CAPACITY = 100_000


class PromptCache:
    def __init__(self, min_tokens: int | None) -> None:
        self._min_tokens = min_tokens
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def cached_tokens(self, owner: bytes, messages: Iterable[Any], sizes: list[int]) -> int:
        """Tokens of the longest known prefix; `sizes` are the prompt's tokens up to each message's end."""
        if self._min_tokens is None or sizes[-1] < self._min_tokens:
            return 0
        longest = 0
        for prefix, size in zip(_prefixes(owner, messages), sizes, strict=True):
            if size >= self._min_tokens and self._saw(prefix):
                longest = size
        return longest // GRANULARITY * GRANULARITY

    def _saw(self, prefix: bytes) -> bool:
        known = prefix in self._seen
        self._seen[prefix] = None
        self._seen.move_to_end(prefix)
        if len(self._seen) > CAPACITY:
            self._seen.popitem(last=False)
        return known


def _prefixes(owner: bytes, messages: Iterable[Any]) -> Iterator[bytes]:
    chain = hashlib.blake2b(owner, digest_size=16)
    for message in messages:
        chain.update(orjson.dumps(message))
        yield chain.digest()
