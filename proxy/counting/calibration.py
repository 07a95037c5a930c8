"""How one model's tokens relate to our estimates, learned from what the upstream has billed.

A recursive least-squares fit of four weights (tokens, words, digits, resent answers), begun at the family's
known factor. It learns from the differences between two bills of one conversation: whatever stands in front
of both, a hidden system prompt or the provider's own framing, falls out of them.
"""

from __future__ import annotations

from math import sqrt

import msgspec

from proxy.counting.estimate import NOTHING, Estimate

Weights = tuple[float, float, float, float]
Covariance = tuple[Weights, Weights, Weights, Weights]

# What an answer costs beyond its own bill when sent again: until learned, OpenAI's framing of a message.
_FIRST_FRAMING = 3.0
# How far a tokenizer that nobody has seen may lie from its family's factor: some 14 % of the tokens.
_FIRST_DOUBT: Covariance = (
    (0.02, 0.0, 0.0, 0.0),
    (0.0, 0.05, 0.0, 0.0),
    (0.0, 0.0, 0.05, 0.0),
    (0.0, 0.0, 0.0, 9.0),
)
_FIRST_NOISE = 4.0
_LEAST_NOISE = 0.25
_NOISE_RATE = 0.05
# A residual beyond this many standard deviations pulls no harder: one odd bill must not turn the weights.
_CLIP = 3.0
# Doubt never ends: a provider may change its tokenizer.
_DRIFT = 1e-5
# The error of an estimate grows with the root of its size, down to this size.
_SMALL = 50


class Calibration(msgspec.Struct, frozen=True, array_like=True):
    weights: Weights
    doubt: Covariance = _FIRST_DOUBT
    noise: float = _FIRST_NOISE  # the variance of what the weights do not explain
    seen: int = 0

    def tokens(self, estimate: Estimate) -> float:
        """What the upstream would bill for it, as far as we know; below zero where it is a difference."""
        return estimate.fixed + _dot(self.weights, _scaled(estimate, 1.0))

    def deviation(self, estimate: Estimate) -> float:
        """The standard deviation of `tokens`."""
        if estimate == NOTHING:
            return 0.0
        scale = _scale(estimate)
        x = _scaled(estimate, scale)
        return sqrt(self.noise + max(0.0, _dot(x, _times(self.doubt, x)))) / scale

    def learned(self, estimate: Estimate, billed: int) -> Calibration:
        """The same, wiser by one bill for exactly this: text, that is, since media has prices of its own."""
        if estimate.tokens <= 0 or estimate.rough or estimate.media:
            return self
        scale = _scale(estimate)
        x = _scaled(estimate, scale)
        direction = _times(self.doubt, x)
        variance = self.noise + max(0.0, _dot(x, direction))
        residual = (billed - estimate.fixed) * scale - _dot(self.weights, x)
        clipped = max(-_CLIP * sqrt(variance), min(_CLIP * sqrt(variance), residual))
        gain = _stretched(direction, 1 / variance)
        noise = self.noise + _NOISE_RATE * (clipped * clipped - variance)
        return Calibration(
            _sum(self.weights, _stretched(gain, clipped)),
            _reduced(self.doubt, gain, direction),
            max(_LEAST_NOISE, noise),
            self.seen + 1,
        )


def first_calibration(factor: float) -> Calibration:
    return Calibration((factor, 0.0, 0.0, _FIRST_FRAMING))


def _scale(estimate: Estimate) -> float:
    return 1 / sqrt(max(_SMALL, abs(estimate.tokens)))


def _scaled(estimate: Estimate, scale: float) -> Weights:
    return (
        estimate.tokens * scale,
        estimate.words * scale,
        estimate.digits * scale,
        estimate.answers * scale,
    )


def _dot(a: Weights, b: Weights) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]


def _times(matrix: Covariance, vector: Weights) -> Weights:
    a, b, c, d = matrix
    return _dot(a, vector), _dot(b, vector), _dot(c, vector), _dot(d, vector)


def _sum(a: Weights, b: Weights) -> Weights:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _stretched(vector: Weights, by: float) -> Weights:
    return vector[0] * by, vector[1] * by, vector[2] * by, vector[3] * by


def _reduced(doubt: Covariance, gain: Weights, direction: Weights) -> Covariance:
    a, b, c, d = (_sum(row, _stretched(direction, -share)) for row, share in zip(doubt, gain, strict=True))
    return (
        (a[0] + _DRIFT, a[1], a[2], a[3]),
        (b[0], b[1] + _DRIFT, b[2], b[3]),
        (c[0], c[1], c[2] + _DRIFT, c[3]),
        (d[0], d[1], d[2], d[3] + _DRIFT),
    )
