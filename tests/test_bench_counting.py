"""The counter keeps its promises on recorded bills, and the benchmark says so. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import counting, traces
from bench.counting import MODEL_MEAN_LIMIT, OVERALL, P99_LIMIT, Speed
from bench.processes import ROOT, BenchmarkFailed
from bench.replay import Accuracy, accuracy, replay, surely
from proxy.counting.anchors import Basis, Count
from proxy.counting.counter import Counted
from proxy.usage import Usage

GOOD = Accuracy(
    requests=20,
    later=15,
    plain=0.2,
    cold_first=0.04,
    cold=0.03,
    cold_growth=0.02,
    opening=None,
    mean=0.005,
    p99=0.05,
    most=0.06,
    within=0.95,
    uncertainty=0.01,
)


def trace(*, tools: list[dict[str, Any]], calls: bool = False) -> dict[str, Any]:
    answer = {"role": "assistant", "content": "Hello."} | ({"tool_calls": [{"id": "1"}]} if calls else {})
    said = [{"role": "user", "content": "Hi"}, answer, {"role": "user", "content": "And now?"}]
    bills = [
        {"n_messages": 1, "prompt_tokens": 8, "completion_tokens": 2, "cached_tokens": None},
        {"n_messages": 3, "prompt_tokens": 17, "completion_tokens": 4},
    ]
    return {"id": "one", "model": "claude-x", "tools": tools, "messages": said, "usage": bills}


def recorded(folder: Path, *several: dict[str, Any]) -> list[traces.Conversation]:
    (folder / traces.BILLED[0]).write_text("".join(json.dumps(one) + "\n" for one in several))
    return traces.conversations(folder)


@pytest.mark.skipif(not traces.conversations(), reason="the recordings are not beside the project")
@pytest.mark.parametrize("half", [0, 1])
async def test_counts_of_recorded_requests_are_as_near_to_their_bills_as_promised(half: int) -> None:
    """Each half by itself, in an order of its own: nothing may hang on what happens to be learned first."""
    order = traces.conversations()[half::2]
    Random(half).shuffle(order)
    found = counting.by_model(await replay(order))
    assert found[OVERALL].mean < counting.MEAN_LIMIT
    for figures in found.values():
        assert figures.mean < MODEL_MEAN_LIMIT
        assert figures.p99 < P99_LIMIT
        assert figures.within > 0.9


def test_a_recording_becomes_the_requests_that_were_billed(tmp_path: Path) -> None:
    (conversation,) = recorded(tmp_path, trace(tools=[{"type": "function"}]))
    first, second = conversation.requests()
    assert (first.bill, second.bill) == (Usage(8, 2), Usage(17, 4))
    assert [len(json.loads(one.body)["messages"]) for one in (first, second)] == [1, 3]
    assert json.loads(first.body)["tools"] == [{"type": "function"}]


def test_a_recording_of_calls_without_tools_is_not_whole(tmp_path: Path) -> None:
    several = recorded(tmp_path, trace(tools=[], calls=True), trace(tools=[]), trace(tools=[{}], calls=True))
    assert [one.whole for one in several] == [False, True, True]


async def test_the_second_request_stands_on_the_bill_of_the_first(tmp_path: Path) -> None:
    first, second = await replay(recorded(tmp_path, trace(tools=[])))
    assert (first.count.basis, second.count.basis) == ("cold", "anchored")
    assert (first.billed, second.billed) == (8, 17)
    assert second.count.exact >= 8
    figures = accuracy([first, second])
    assert (figures.requests, figures.later, figures.mean) == (2, 1, second.error)


def test_a_count_that_failed_is_no_figure() -> None:
    failed = Counted(Count(10, 5, Basis.ROUGH), "gpt-4o")
    with pytest.raises(BenchmarkFailed):
        surely(failed)


def test_the_tables_say_what_was_kept_and_what_was_not(tmp_path: Path) -> None:
    whole = recorded(tmp_path, trace(tools=[]))
    bad = replace(GOOD, mean=0.015, cold_first=0.08)
    tables = counting.section(whole, {"claude-x": bad, OVERALL: bad}, [Speed(100, 7, 20)], orders=1)
    assert "mean < 2 %, p99 < 10 %: pass" in tables
    assert "mean < 1 %, p99 < 10 %: **FAIL**" in tables
    assert "< 5 %: first **FAIL**, every pass" in tables
    assert "100.0 ms | < 500 ms: pass" in tables
    assert "7.0 ms | < 5 ms: **FAIL**" in tables


def test_a_cold_count_is_not_judged_by_tools_that_nobody_recorded(tmp_path: Path) -> None:
    half = recorded(tmp_path, trace(tools=[], calls=True))
    assert "not judged: tools not recorded" in counting.before_the_first({"claude-x": GOOD}, half)


def test_the_long_conversation_has_a_thousand_messages_and_goes_on_as_it_began() -> None:
    shorter, longer = (json.loads(counting.long_conversation(n, 0))["messages"] for n in (1000, 1001))
    assert (len(shorter), len(longer)) == (1000, 1001)
    assert longer[:1000] == shorter
    assert sum(len(json.dumps(message)) for message in shorter) > 900_000


@pytest.mark.parametrize("there", [(), traces.BILLED[:1]], ids=["none", "half"])
def test_without_all_recordings_it_says_so_measures_what_it_can_and_writes_nothing(
    tmp_path: Path, there: tuple[str, ...]
) -> None:
    for name in there:
        (tmp_path / name).write_text(json.dumps(trace(tools=[])) + "\n")
    command = [sys.executable, "-m", "bench.counting", "--traces", str(tmp_path), "--rounds", "1"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["accuracy"].keys() == ({"claude-x", OVERALL} if there else set())
    assert found["speed_ms"][0].keys() == {"cold", "warm", "restarted"}
    assert f"{traces.BILLED[-1]} not found in {tmp_path}" in done.stderr
    before = counting.DOCUMENT.read_bytes()
    refused = subprocess.run([*command, "--write"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "nothing is written" in refused.stderr
    assert counting.DOCUMENT.read_bytes() == before
