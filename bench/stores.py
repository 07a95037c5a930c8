"""python -m bench.stores: what a long conversation takes in a store, and how often the store is asked."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
from aiohttp import ClientSession

from bench import kept, playback, procfs, report
from bench.kept import Kept, Room
from bench.playback import request_body, serving
from bench.processes import ROOT, BenchmarkFailed, start_valkey
from bench.traces import Conversation
from bench.wire import Traffic, Wire
from bench.work import agents_work
from proxy.app import Tailfold
from proxy.ports import Space
from proxy.simulator import Simulator, SimulatorConfig

DOCUMENT = ROOT / "docs" / "operations.md"

MODEL, WINDOW = "gpt-4o", 32_000
QUICK_WINDOW = 8_000
_ASKED, _AWAY = "tailfold_store_seconds_count", "tailfold_store_outages_total"
_PATIENCE = 60.0
_ATTEMPTS = 5

SQLITE, VALKEY = "SQLite", "Valkey"
_SHOWN = (Space.MESSAGES, Space.FOLDS, Space.LANES, Space.COUNTS, Space.ANCHORS)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    store: str
    settings: dict[str, Any]
    replicas: int = 1


def cases() -> list[Case]:
    sealed = {"encryption": {"keys": "k1:" + base64.b64encode(bytes(range(32))).decode()}}
    digests = {"history": {"store_messages": False}}
    alone = [
        Case(name, store, settings)
        for store in (SQLITE, VALKEY)
        for name, settings in (("as it is", {}), ("encrypted", sealed), ("without messages", digests))
    ]
    return [*alone, Case("two replicas in turn", VALKEY, {}, replicas=2)]


@dataclass(frozen=True, slots=True)
class Asked:
    """Of a store, by one request: calls of the store port, and what went over the wire for them."""

    calls: int
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Turn:
    before: Asked  # on the request's way: until the upstream had it
    after: Asked
    fold: str


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    kept: Kept
    turns: tuple[Turn, ...]
    outages: int
    server_seconds: float  # CPU time of the Valkey

    @property
    def usual(self) -> tuple[Turn, ...]:
        """Without each replica's first, which opens the way to the store."""
        return self.turns[self.case.replicas :]

    @property
    def folds(self) -> int:
        return len({turn.fold for turn in self.turns if turn.fold})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.stores", description="Drive one long conversation and look at the store. Loopback only."
    )
    parser.add_argument("--messages", type=int, help="in the conversation (1000; quick: 60)")
    parser.add_argument("--quick", action="store_true", help=f"short, and in a window of {QUICK_WINDOW:,}")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/operations.md")
    given = parser.parse_args()
    given.messages = given.messages or (60 if given.quick else 1000)
    if given.messages < 4:
        parser.error("--messages must be 4 at least")
    if given.quick and given.write:
        parser.error("a quick run is too short to be written down")
    return given


def main() -> int:
    given = arguments()
    if not procfs.available():
        print("bench.stores: CPU time is read from /proc, which this system does not have", file=sys.stderr)
        return 2
    playback.quiet()
    conversation = agents_work(given.messages)
    try:
        results = asyncio.run(measured(conversation, QUICK_WINDOW if given.quick else WINDOW))
    except BenchmarkFailed as failure:
        print(f"bench.stores failed: {failure}", file=sys.stderr)
        return 1
    tables = section(conversation, results)
    print(json.dumps(as_json(results), indent=2) if given.json else tables)
    if given.write:
        DOCUMENT.write_text(report.with_section(DOCUMENT.read_text(), tables))
    return 0


async def measured(conversation: Conversation, window: int) -> list[Result]:
    return [await measured_case(case, conversation, window) for case in cases()]


async def measured_case(case: Case, conversation: Conversation, window: int) -> Result:
    """Anew where the machine was so busy that the store was given up for a while."""
    for _ in range(_ATTEMPTS):
        result = await _measured(case, conversation, window)
        if result.outages == 0:
            return result
    raise BenchmarkFailed(f"the machine is too busy to measure {case.store}, {case.name}")


async def _measured(case: Case, conversation: Conversation, window: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="tailfold-bench-") as name:
        folder = Path(name)
        if case.store == SQLITE:
            file = folder / "tailfold.db"
            driven = await _driven(case, conversation, window, f"sqlite:///{file}", [])
            return Result(case, kept.in_file(file), *driven, server_seconds=0.0)
        server, port = start_valkey("valkey", folder)
        with server:
            return await _measured_on(port, case, conversation, window, server.family())


async def _measured_on(
    port: int, case: Case, conversation: Conversation, window: int, pids: list[int]
) -> Result:
    began = procfs.cpu_seconds(pids)
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(port)) for _ in range(case.replicas)]
        driven = await _driven(case, conversation, window, "", wires)
        seconds = procfs.cpu_seconds(pids) - began
    return Result(case, kept.in_valkey(port), *driven, server_seconds=seconds)


async def _driven(
    case: Case, conversation: Conversation, window: int, url: str, wires: Sequence[Wire]
) -> tuple[tuple[Turn, ...], int]:
    """And how often the store was away meanwhile."""
    urls = [f"redis://127.0.0.1:{wire.port}/0" for wire in wires] or [url]
    config = SimulatorConfig(windows={MODEL: window})
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(Simulator(config))
        settings: dict[str, Any] = {
            "upstream": simulator.base_url,
            "models": {MODEL: {"window": window}},
            "windows": {"ask": False},
            "secret": "a secret that replicas of the benchmark share",
            **case.settings,
        }
        running = [await stack.enter_async_context(serving(store=each, **settings)) for each in urls]
        session = await stack.enter_async_context(ClientSession())
        drive = Drive(simulator, running, wires, session)
        lengths = conversation.turns()
        turns = [await drive.turn(conversation, length, at) for at, length in enumerate(lengths)]
        return tuple(turns), sum(_sum(app, _AWAY) for app, _ in running)


class Drive:
    """Turn by turn, each at the next replica, and the next when nothing of the last one is left to do."""

    def __init__(
        self,
        simulator: Simulator,
        running: Sequence[tuple[Tailfold, str]],
        wires: Sequence[Wire],
        session: ClientSession,
    ) -> None:
        self._simulator = simulator
        self._running = running
        self._wires = wires
        self._session = session

    async def turn(self, conversation: Conversation, length: int, number: int) -> Turn:
        self._simulator.forget_requests()
        start = self._asked()
        _, origin = self._running[number % len(self._running)]
        async with asyncio.TaskGroup() as both:
            answer = both.create_task(self._answer(origin, conversation, length))
            arrival = both.create_task(self._arrival())
        for app, _ in self._running:
            await app.rooms.folded()
            await app.rooms.written()
        arrived = arrival.result()
        return Turn(_less(arrived, start), _less(self._asked(), arrived), answer.result())

    async def _answer(self, origin: str, conversation: Conversation, length: int) -> str:
        """The fold that it was sent with."""
        headers = {"Authorization": "Bearer sk-bench", "Content-Type": "application/json"}
        body = orjson.dumps(request_body(conversation, length, MODEL))
        url = f"{origin}/v1/chat/completions"
        async with self._session.post(url, data=body, headers=headers) as response:
            if response.status != 200:
                raise BenchmarkFailed(f"{response.status} for {length} messages: {await response.text()}")
            await response.read()
            return response.headers.get(playback.FOLD, "")

    async def _arrival(self) -> Asked:
        await self._simulator.wait_until(lambda: bool(self._simulator.chat_calls()), _PATIENCE)
        return self._asked()

    def _asked(self) -> Asked:
        traffic = sum((wire.traffic for wire in self._wires), Traffic())
        return Asked(sum(_sum(app, _ASKED) for app, _ in self._running), traffic)


def _sum(app: Tailfold, name: str) -> int:
    metrics = app.metrics.registry.restricted_registry([name]).collect()
    return round(sum(sample.value for metric in metrics for sample in metric.samples))


def _less(one: Asked, before: Asked) -> Asked:
    return Asked(one.calls - before.calls, one.traffic - before.traffic)


# What is shown of it.


def section(conversation: Conversation, results: Sequence[Result]) -> str:
    return "\n\n".join([caption(conversation, results), sizes(results), traffic(results)])


def caption(conversation: Conversation, results: Sequence[Result]) -> str:
    messages = conversation.messages[:-1]  # the last one is the answer
    size = sum(len(orjson.dumps(message)) for message in messages)
    folds = " and ".join(str(number) for number in sorted({result.folds for result in results}))
    return (
        f"{datetime.now(UTC).date().isoformat()}: {report.machine()}, redis {_redis()}. "
        f"A coding agent's conversation of {len(messages):,} messages, {size:,} bytes of JSON together, in "
        f"{len(results[0].turns):,} requests; {folds} folds."
    )


def _redis() -> str:
    from importlib.metadata import version

    return version("redis")


def sizes(results: Sequence[Result]) -> str:
    """Two replicas keep what one keeps."""
    head = ["KB in the store", "", *(space.value for space in _SHOWN), "other", "all", "keys", "values"]
    alone = [result for result in results if result.case.replicas == 1]
    return _table(head, 2, [[result.case.store, result.case.name, *_sizes(result.kept)] for result in alone])


def _sizes(of: Kept) -> list[str]:
    shown = [of.spaces.get(space.value, Room()) for space in _SHOWN]
    every = sum(of.spaces.values(), Room())
    other = every.bytes - sum(room.bytes for room in shown)
    rooms = [*(room.bytes for room in shown), other, of.whole]
    return [*(_kilobytes(size) for size in rooms), f"{every.keys:,}", f"{every.values:,}"]


def traffic(results: Sequence[Result]) -> str:
    head = ["per request", "", "on its way: calls", "round trips", "most", "commands", "KB out and in"]
    head += ["after it: calls", "round trips", "commands", "KB out and in", "CPU of Valkey (µs)"]
    return _table(head, 2, [[result.case.store, result.case.name, *_traffic(result)] for result in results])


def _traffic(result: Result) -> list[str]:
    before = [turn.before for turn in result.usual]
    after = [turn.after for turn in result.usual]
    if result.case.store == SQLITE:
        return [_mean([a.calls for a in before]), *["—"] * 4, _mean([a.calls for a in after]), *["—"] * 4]
    return [
        _mean([asked.calls for asked in before]),
        _mean([asked.traffic.trips for asked in before]),
        str(max(asked.traffic.trips for asked in before)),
        *_on_the_wire(before),
        _mean([asked.calls for asked in after]),
        _mean([asked.traffic.trips for asked in after]),
        *_on_the_wire(after),
        f"{result.server_seconds / len(result.turns) * 1e6:,.0f}",
    ]


def _on_the_wire(several: Sequence[Asked]) -> list[str]:
    out, back = (fmean(sizes) for sizes in zip(*map(_bytes, several), strict=True))
    return [_mean([asked.traffic.commands for asked in several]), f"{_kilobytes(out)}, {_kilobytes(back)}"]


def _bytes(asked: Asked) -> tuple[int, int]:
    return asked.traffic.asked, asked.traffic.answered


def _mean(numbers: Sequence[int]) -> str:
    return f"{fmean(numbers):.1f}"


def _kilobytes(size: float) -> str:
    return f"{size / 1024:,.0f}" if size >= 10 * 1024 else f"{size / 1024:.1f}"


def _table(head: Sequence[str], words: int, rows: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [asdict(result) | {"folds": result.folds} for result in results]


if __name__ == "__main__":
    sys.exit(main())
