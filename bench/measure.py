"""The run: all subjects side by side, measured in turns."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bench import subjects
from bench.figures import rotated
from bench.load import PATIENCE, Job, Sample
from bench.processes import Child, start_valkey
from bench.subjects import Running

SIZES = (1, 40, 400)
CONCURRENCY = 32
PACED_SIZE = 40
PAUSE_MS = 2
MOST_REQUESTS = 200_000
TURNS, TURN_SIZE = 24, 2  # of a conversation that grows; kilobytes


@dataclass(frozen=True, slots=True)
class Workload:
    kilobytes: int
    concurrency: int
    stream: bool = False
    pause_ms: int = 0
    turns: int = 0  # of one conversation that grows, where it is not eight that stay as they are

    @property
    def share(self) -> float:
        """Of a slice's time: a median needs fewer requests than a rate."""
        return 1.0 if self.concurrency > 1 else 0.5


def throughput(kilobytes: int) -> Workload:
    return Workload(kilobytes, CONCURRENCY)


def latency(kilobytes: int) -> Workload:
    return Workload(kilobytes, 1)


def first_event(kilobytes: int) -> Workload:
    return Workload(kilobytes, 1, stream=True)


PACED_STREAMS = Workload(PACED_SIZE, CONCURRENCY, stream=True, pause_ms=PAUSE_MS)
GROWING = Workload(TURN_SIZE, 1, turns=TURNS)

_WITH_A_STORE = [kind(size) for size in SIZES for kind in (throughput, latency)]
WORKLOADS = [*_WITH_A_STORE, *map(first_event, SIZES), PACED_STREAMS, GROWING]


def takes_part(subject: str, workload: Workload) -> bool:
    """A store costs nothing that would show elsewhere than where it may be asked."""
    if subject == subjects.TAILFOLD:
        return True
    if subject == subjects.SHARED:
        return workload in _WITH_A_STORE or workload == GROWING
    return (subject in (subjects.PAIR, subjects.SHARED_PAIR)) == (workload == GROWING)


@dataclass(frozen=True, slots=True)
class Results:
    """By subject, one value per round; memory after the run only once."""

    samples: dict[tuple[str, Workload], list[Sample]]
    start_seconds: dict[str, list[float]]
    resident_at_start: dict[str, list[int]]
    resident_at_end: dict[str, int]

    def of(self, workload: Workload, figure: Callable[[Sample], float]) -> dict[str, list[float]]:
        return {
            subject: [figure(sample) for sample in samples]
            for (subject, measured), samples in self.samples.items()
            if measured == workload
        }


class LoadGenerator:
    def __init__(self, child: Child) -> None:
        self._child = child
        self._jobs, self._results = child.pipes
        self._conversations = count()

    def sample(self, running: Running, workload: Workload, seconds: float) -> Sample:
        job = Job(
            ports=list(running.ports),
            kilobytes=workload.kilobytes,
            stream=workload.stream,
            pause_ms=workload.pause_ms,
            concurrency=workload.concurrency,
            seconds=seconds * workload.share,
            most=MOST_REQUESTS,
            pids=running.family(),
            growing=f"conversation {next(self._conversations)}" if workload.turns else None,
            turns=workload.turns,
        )
        result = self._result_of(job)
        if "error" in result:
            raise running.failure(f"{workload}: {result['error']}")
        return Sample(**result["sample"])

    def _result_of(self, job: Job) -> dict[str, Any]:
        try:
            self._jobs.write(json.dumps(asdict(job)) + "\n")
            self._jobs.flush()
        except BrokenPipeError:
            raise self._child.failure("has ended") from None
        ready, _, _ = select.select([self._results], [], [], job.seconds + 2 * PATIENCE)
        line = self._results.readline() if ready else ""
        if not line:
            raise self._child.failure("gave no result")
        result: dict[str, Any] = json.loads(line)
        return result


def run(rounds: int, seconds: float, say: Callable[[str], None]) -> Results:
    with tempfile.TemporaryDirectory(prefix="tailfold-bench-") as name, ExitStack() as children:
        folder = Path(name)
        running = _start_all(folder, children)
        load = LoadGenerator(children.enter_context(_load_generator(folder)))  # last: it is ended first
        results = Results(defaultdict(list), defaultdict(list), defaultdict(list), {})
        say("warming up")
        for workload in WORKLOADS:
            for name in _taking_part(workload, running):
                load.sample(running[name], workload, seconds / 4)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            _measure_starts(number, running[subjects.DIRECT].port, folder, results)
            _measure_loads(number, running, load, seconds, results)
        for subject in running.values():
            results.resident_at_end[subject.name] = subject.resident_bytes()
        return results


def _load_generator(folder: Path) -> Child:
    return Child("load", [sys.executable, "-m", "bench.load"], folder, stdin=subprocess.PIPE)


def _start_all(folder: Path, children: ExitStack) -> dict[str, Running]:
    def started(name: str, command: subjects.Command, upstream_port: int) -> Running:
        one = subjects.start(name, command, upstream_port, folder)
        children.callback(one.end)
        return one

    upstream = started(subjects.DIRECT, subjects.upstream, 0)
    valkey, store_port = start_valkey("valkey", folder)
    children.callback(valkey.end)
    on_valkey = subjects.on_valkey(store_port)
    alone = {**subjects.proxies(), subjects.SHARED: on_valkey}
    pairs = {subjects.PAIR: subjects.in_memory(), subjects.SHARED_PAIR: on_valkey}
    running = {name: started(name, command, upstream.port) for name, command in alone.items()}
    for name, command in pairs.items():
        two = [started(f"{name}, {number}", command, upstream.port) for number in (1, 2)]
        running[name] = subjects.together(name, two)
    return {upstream.name: upstream, **running}


def _measure_starts(number: int, upstream_port: int, folder: Path, results: Results) -> None:
    """Of fresh processes, which are ended at once: the measured ones are long warm."""
    commands = subjects.proxies()
    for name in rotated(list(commands), number):
        place = folder / f"start-{number}-{name}"
        place.mkdir()
        fresh = subjects.start(name, commands[name], upstream_port, place)
        fresh.end()
        results.start_seconds[name].append(fresh.start_seconds)
        results.resident_at_start[name].append(fresh.resident_at_start)


def _measure_loads(
    number: int, running: dict[str, Running], load: LoadGenerator, seconds: float, results: Results
) -> None:
    for turn, workload in enumerate(WORKLOADS):
        for name in rotated(_taking_part(workload, running), number + turn):
            results.samples[name, workload].append(load.sample(running[name], workload, seconds))


def _taking_part(workload: Workload, running: Iterable[str]) -> list[str]:
    return [name for name in running if takes_part(name, workload)]
