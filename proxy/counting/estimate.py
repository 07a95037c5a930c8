"""What is known of a text's size before anybody has billed it."""

from __future__ import annotations

import msgspec


class Estimate(msgspec.Struct, frozen=True, array_like=True):
    """The size of a message or of several, in the parts that different tokenizers weigh differently.

    Which weights apply is learned from what the upstream bills (`proxy.counting.calibration`): Claude needs a
    quarter more tokens than o200k_base, most of it for words, little of it for digits.
    """

    fixed: int = 0  # framing and media: the same whatever the tokenizer
    tokens: int = 0  # of all text, by our encoding
    words: int = 0  # runs of ASCII letters in it
    digits: int = 0  # ASCII digits in it
    rough: int = 0  # in how many messages text was counted without a tokenizer
    answers: int = 0  # answers billed before as such: only what frames them as messages is yet to be billed
    media: int = 0  # images, sounds, files and the like: what they really cost is for each server to say

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.fixed + other.fixed,
            self.tokens + other.tokens,
            self.words + other.words,
            self.digits + other.digits,
            self.rough + other.rough,
            self.answers + other.answers,
            self.media + other.media,
        )

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.fixed - other.fixed,
            self.tokens - other.tokens,
            self.words - other.words,
            self.digits - other.digits,
            self.rough - other.rough,
            self.answers - other.answers,
            self.media - other.media,
        )

    @property
    def plain(self) -> int:
        """Taken at face value, as for a model whose tokenizer is ours."""
        return self.fixed + self.tokens


NOTHING = Estimate()
