"""The lines of `tailfold doctor`, and the same as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from proxy.cli.doctor.finding import Finding, Verdict

_COLOURS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def lines(findings: Sequence[Finding], *, colour: bool) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        verdict = click.style(finding.verdict, fg=_COLOURS[finding.verdict]) if colour else finding.verdict
        yield f"{verdict}  {finding.name:<{width}}  {_printable(finding.found)}"
        if finding.hint is not None:
            yield f"      {'':<{width}}  {_printable(finding.hint)}"
    yield ""
    yield _summary(findings)


def as_json(findings: Sequence[Finding], *, healthy: bool) -> str:
    checks = [
        {"name": each.name, "verdict": each.verdict, "found": each.found, "hint": each.hint}
        for each in findings
    ]
    return json.dumps({"healthy": healthy, "checks": checks}, indent=2)


def _summary(findings: Sequence[Finding]) -> str:
    count = Counter(finding.verdict for finding in findings)
    return f"{count[Verdict.PASS]} passed, {count[Verdict.WARN]} warned, {count[Verdict.FAIL]} failed"


def _printable(text: str) -> str:
    """Some of it comes from servers, and must not steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
