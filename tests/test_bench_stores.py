"""What a conversation takes in a store is measured on real ones, and the wire between counts right."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from redis.asyncio import Redis

from bench import procfs, stores
from bench.playback import request_body
from bench.processes import ROOT, BenchmarkFailed
from bench.wire import Commands, Traffic, Wire
from bench.work import agents_work
from proxy.simulator import SimulatorConfig
from proxy.simulator.validate import validated
from tests.store.servers import server

linux_only = pytest.mark.skipif(not procfs.available(), reason="the benchmark reads /proc")

TALK = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$8\r\n*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n"


@linux_only
def test_a_quick_run_finds_the_conversation_in_both_stores_and_one_round_trip_on_its_way() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.stores", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(results) == 7
    for result in results:
        spaces, digests = result["kept"]["spaces"], result["case"]["name"] == "without messages"
        assert spaces.get("messages", {}).get("values", 0) == (0 if digests else 60), result["case"]
        assert {"folds", "lanes", "counts", "anchors"} <= spaces.keys()
        assert result["folds"] >= 2
        assert result["kept"]["whole"] >= sum(room["bytes"] for room in spaces.values())
    for result in results[3:]:
        trips = [turn["before"]["traffic"]["trips"] for turn in result["turns"]]
        # Each fold is planned twice: when it is begun, and when it is used.
        assert sum(number > 1 for number in trips[result["case"]["replicas"] :]) <= 2 * result["folds"]


def test_a_piece_may_end_anywhere_in_a_command() -> None:
    for end in range(len(TALK) + 1):
        commands = Commands()
        assert commands.begun_in(TALK[:end]) + commands.begun_in(TALK[end:]) == 3
    commands = Commands()
    assert sum(commands.begun_in(bytes([byte])) for byte in TALK) == 3


async def test_what_is_sent_at_once_is_one_round_trip() -> None:
    with server() as valkey:
        async with Wire(valkey.port) as wire, Redis(port=wire.port) as client:
            await client.ping()
            before = wire.traffic
            together = client.pipeline(transaction=False)
            for _ in range(5):
                together.echo("hello")
            assert await together.execute() == [b"hello"] * 5
            asked = wire.traffic - before
    assert asked == Traffic(trips=1, commands=5, asked=5 * 25, answered=5 * 11)


def test_the_conversation_is_one_that_a_provider_takes() -> None:
    conversation = agents_work(40)
    assert len(conversation.messages) == 41
    for length in conversation.turns():
        body = request_body(conversation, length, stores.MODEL)
        validated(body, SimulatorConfig())
    assert conversation.turns()[-1] == 40


async def test_a_refused_request_ends_the_run() -> None:
    case = stores.cases()[0]
    with pytest.raises(ExceptionGroup) as failure:
        await asyncio.wait_for(stores.measured_case(case, agents_work(8), window=100), 60)
    assert failure.group_contains(BenchmarkFailed)
