"""What a check has found, and what it means for `tailfold serve`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


_GRAVITY = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Finding:
    """`hint` says what to do; what passes needs none."""

    name: str
    verdict: Verdict
    found: str
    hint: str | None = None


def passes(name: str, found: str) -> Finding:
    return Finding(name, Verdict.PASS, found)


def warns(name: str, found: str, hint: str) -> Finding:
    return Finding(name, Verdict.WARN, found, hint)


def fails(name: str, found: str, hint: str) -> Finding:
    return Finding(name, Verdict.FAIL, found, hint)


def gravest(findings: Iterable[Finding]) -> Finding:
    """Of several findings about one thing the first of the worst."""
    return max(findings, key=lambda finding: _GRAVITY.index(finding.verdict))


def any_fails(findings: Iterable[Finding]) -> bool:
    return any(finding.verdict is Verdict.FAIL for finding in findings)
