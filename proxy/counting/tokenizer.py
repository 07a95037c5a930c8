"""How many tokens a text has: exact up to a size, sampled above it, and never longer than a moment."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import structlog

from proxy.counting import vocabularies
from proxy.counting.vocabularies import VocabularyUnavailable

log = structlog.get_logger("tailfold")

# In characters. tiktoken takes any text of this size in a quarter of a second; from about a million on, a run
# of white space overflows the stack of its regular expressions.
CAP = 384 * 1024

# Handed to tiktoken at a time, where the text allows it: it holds the interpreter's lock to make its list.
PIECE = 64 * 1024

# How much of a longer text is looked at, and in slices of what size: many small ones miss less between them.
# A power of two, since the longest tokens (runs of spaces) are 128 characters.
SAMPLE = 1024 * 1024
SLICE = 2 * 1024

# Both patterns always end a piece here, whatever stands before and after: no alternative of theirs goes on
# from anything into a space or tab, from a line break into what is neither white space nor "/", or from a
# letter into a digit; and none looks back. (Python's \s has a few control characters more than theirs, which
# is the safe side.)
_SEAM = re.compile(r"\S(?=[ \t])|[\r\n](?=[^\s/])|[A-Za-z](?=[0-9])")


class CountingFailed(Exception):
    """The tokenizer gave up on a text; `kind` says how, without a word of the text."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class Counting(Protocol):
    def count(self, text: str) -> int:
        """Raises CountingFailed."""
        ...


class Tokenizer:
    """Safe to use from several threads. Special tokens in a text are text, a lone surrogate is U+FFFD."""

    def __init__(self, encoding: Encoding, *, cap: int = CAP, piece: int = PIECE) -> None:
        self._encoding = encoding
        self._cap = cap
        self._piece = piece

    def count(self, text: str) -> int:
        if len(text) > self._cap:
            return self._sampled(text)
        if len(text) <= self._piece:
            return self._encoded(text)
        return sum(map(self._encoded, pieces(text, self._piece)))

    def _sampled(self, text: str) -> int:
        samples = list(slices(text, SAMPLE))
        tokens = sum(map(self._encoded, samples)) - self._cost_of_a_cut(samples[::8]) * len(samples)
        # By bytes, not characters: emoji take more of both, so it matters less how many the slices have met.
        return math.ceil(tokens * _size(text) / sum(map(_size, samples)))

    def _cost_of_a_cut(self, samples: list[str]) -> float:
        """How many tokens more a text has for being cut in two. A slice has two ends: one cut too many."""
        whole = sum(map(self._encoded, samples))
        halves = sum(
            self._encoded(each[: SLICE // 2]) + self._encoded(each[SLICE // 2 :]) for each in samples
        )
        return (halves - whole) / len(samples)

    def _encoded(self, text: str) -> int:
        try:
            return len(self._encoding.encode_ordinary(text))
        except BaseException as failure:
            # A panic in tiktoken is a BaseException of a class that cannot be imported. It, and whatever else
            # a native library may raise, costs this text its exact count; an interrupt goes on its way.
            if isinstance(failure, Exception) or type(failure).__name__ == "PanicException":
                raise CountingFailed(type(failure).__name__) from failure
            raise


class Rationed:
    """A tokenizer for one request: it gives up for good once that has had its share of text or of time."""

    def __init__(self, tokenizer: Counting, most: int, in_time: Callable[[], bool]) -> None:
        self._tokenizer = tokenizer
        self._left = most  # in bytes
        self._in_time = in_time

    def count(self, text: str) -> int:
        self._left -= _size(text)
        if self._left < 0 or not self._in_time():
            raise CountingFailed("more than is counted of one request")
        return self._tokenizer.count(text)


def pieces(text: str, size: int) -> Iterator[str]:
    """The text in pieces whose tokens are those of the whole; longer than `size` where there is no seam."""
    start = 0
    while len(text) - start > size:
        seam = _SEAM.search(text, start + size - 1)
        if seam is None:
            break
        yield text[start : seam.end()]
        start = seam.end()
    yield text[start:]


def slices(text: str, budget: int) -> Iterator[str]:
    """One slice from each of many equal stretches, at places that no regular text can be in step with."""
    number = max(1, min(budget, len(text)) // SLICE)
    stretch = len(text) / number
    place = Random(len(text))  # the same text has the same count on every replica
    for index in range(number):
        start = int(index * stretch + place.random() * max(0.0, stretch - SLICE))
        yield text[start : start + SLICE]


def rough(text: str) -> int:
    """What a text is taken for where it cannot be counted: rather too much than too little."""
    return max(-(-len(text) // 4), -(-_size(text) // 3))


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


class Encodings:
    """The tokenizers that have been loaded. Where one is not there (yet), whoever asks counts roughly."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._loaded: dict[str, Tokenizer | None] = {}
        self._lock = threading.Lock()

    def ready(self, name: str) -> Tokenizer | None:
        return self._loaded.get(vocabularies.known(name))

    def load(self, name: str) -> Tokenizer | None:
        """Blocks for about 0.2 s the first time: call it in a thread. A failure is final, and logged once."""
        known = vocabularies.known(name)
        with self._lock:
            if known not in self._loaded:
                self._loaded[known] = self._read(known)
            return self._loaded[known]

    def _read(self, name: str) -> Tokenizer | None:
        try:
            return Tokenizer(vocabularies.load(name, self._folder))
        except VocabularyUnavailable as failure:
            log.warning("tokenizer unavailable, counting roughly", encoding=name, reason=str(failure))
            return None
