"""The edge around each check, and all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from proxy.cli.doctor.examining import examined, settled
from proxy.cli.doctor.finding import Finding, Verdict, passes
from proxy.cli.doctor.upstream import Key
from proxy.settings import Settings
from proxy.simulator import Simulator

DOCS = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
NAMES = [
    *("port", "upstream", "upstream clock", "key", "store", "store file", "store space", "store server"),
    *("store memory", "store persistence", "store role", "store cluster", "store clock", "encryption"),
    *("model NAME", "vocabularies"),
]


async def good() -> Sequence[Finding]:
    return [passes("one", "as it should be")]


async def broken() -> Sequence[Finding]:
    raise KeyError("sk-secret")


async def endless() -> Sequence[Finding]:
    await asyncio.Event().wait()
    return []


async def test_what_a_check_finds_is_handed_on() -> None:
    assert await settled("one", good()) == [passes("one", "as it should be")]


async def test_a_check_that_breaks_is_a_finding_that_tells_only_the_kind_of_error() -> None:
    (finding,) = await settled("one", broken())
    assert (finding.name, finding.verdict) == ("one", Verdict.FAIL)
    assert "KeyError" in finding.found
    assert "sk-secret" not in str(finding)


async def test_a_check_that_does_not_end_is_a_finding() -> None:
    (finding,) = await settled("one", endless(), limit=0.01)
    assert finding.verdict is Verdict.FAIL
    assert "0.01 s" in finding.found


async def test_every_family_has_its_say(tmp_path: Path) -> None:
    async with Simulator() as upstream:
        settings = Settings(upstream=upstream.base_url, port=0, store=f"sqlite:///{tmp_path}/state.db")
        findings = await examined(settings, Key("sk-test"), ["gpt-4o"])
        assert upstream.arrived > 0
        assert upstream.chat_calls() == upstream.summary_calls() == []
    assert [finding.name for finding in findings] == [
        "port",
        "upstream",
        "key",
        "store",
        "store file",
        "store space",
        "encryption",
        "model gpt-4o",
        "vocabularies",
    ]
    assert {finding.verdict for finding in findings} == {Verdict.PASS}


def test_every_check_is_documented() -> None:
    for name in NAMES:
        assert f"| `{name}` |" in DOCS
