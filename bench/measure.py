"""The run: all subjects side by side, measured in turns."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import subjects
from bench.figures import rotated
from bench.load import PATIENCE, Job, Sample
from bench.processes import Child
from bench.subjects import Running

SIZES = (1, 40, 400)
CONCURRENCY = 32
PACED_SIZE = 40
PAUSE_MS = 2
MOST_REQUESTS = 200_000


@dataclass(frozen=True, slots=True)
class Workload:
    kilobytes: int
    concurrency: int
    stream: bool = False
    pause_ms: int = 0

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

WORKLOADS = [
    *(kind(size) for size in SIZES for kind in (throughput, latency, first_event)),
    PACED_STREAMS,
]


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

    def sample(self, running: Running, workload: Workload, seconds: float) -> Sample:
        job = Job(
            port=running.port,
            kilobytes=workload.kilobytes,
            stream=workload.stream,
            pause_ms=workload.pause_ms,
            concurrency=workload.concurrency,
            seconds=seconds * workload.share,
            most=MOST_REQUESTS,
            pids=running.child.family(),
        )
        result = self._result_of(job)
        if "error" in result:
            running.child.check_alive()
            raise running.child.failure(f"{workload}: {result['error']}")
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
            for subject in running.values():
                load.sample(subject, workload, seconds / 4)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            _measure_starts(number, running[subjects.DIRECT].port, folder, results)
            _measure_loads(number, running, load, seconds, results)
        for subject in running.values():
            results.resident_at_end[subject.name] = subject.child.resident_bytes()
        return results


def _load_generator(folder: Path) -> Child:
    return Child("load", [sys.executable, "-m", "bench.load"], folder, stdin=subprocess.PIPE)


def _start_all(folder: Path, children: ExitStack) -> dict[str, Running]:
    upstream = subjects.start(subjects.DIRECT, subjects.upstream, 0, folder)
    children.enter_context(upstream.child)
    running = {upstream.name: upstream}
    for name, command in subjects.proxies().items():
        running[name] = subjects.start(name, command, upstream.port, folder)
        children.enter_context(running[name].child)
    return running


def _measure_starts(number: int, upstream_port: int, folder: Path, results: Results) -> None:
    """Of fresh processes, which are ended at once: the measured ones are long warm."""
    commands = subjects.proxies()
    for name in rotated(list(commands), number):
        place = folder / f"start-{number}-{name}"
        place.mkdir()
        fresh = subjects.start(name, commands[name], upstream_port, place)
        fresh.child.end()
        results.start_seconds[name].append(fresh.start_seconds)
        results.resident_at_start[name].append(fresh.resident_at_start)


def _measure_loads(
    number: int, running: dict[str, Running], load: LoadGenerator, seconds: float, results: Results
) -> None:
    for turn, workload in enumerate(WORKLOADS):
        for name in rotated(list(running), number + turn):
            results.samples[name, workload].append(load.sample(running[name], workload, seconds))
