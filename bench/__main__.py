"""python -m bench: measure, compare, print."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from datetime import UTC, datetime
from time import perf_counter
from types import FrameType

from bench import measure, procfs, report
from bench.processes import ROOT, BenchmarkFailed

DOCUMENT = ROOT / "docs" / "performance.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measure Tailfold beside no proxy, a bare aiohttp passthrough and nginx; loopback only.",
    )
    parser.add_argument("--rounds", type=int, help="how often every subject gets its turn (15; quick: 2)")
    parser.add_argument("--seconds", type=float, help="length of one slice of load (0.3; quick: 0.15)")
    parser.add_argument("--quick", action="store_true", help="a short run: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    given = parser.parse_args()
    given.rounds = given.rounds or (2 if given.quick else 15)
    given.seconds = given.seconds or (0.15 if given.quick else 0.3)
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    if given.quick and given.write:
        parser.error("a quick run is too short to be written down")
    return given


def main() -> int:
    given = arguments()
    if not procfs.available():
        print("bench: CPU time is read from /proc, which this system does not have", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end)
    began, foreign = perf_counter(), procfs.foreign_seconds()
    try:
        results = measure.run(
            given.rounds, given.seconds, say=lambda line: print(line, file=sys.stderr, flush=True)
        )
    except BenchmarkFailed as failure:
        print(f"bench failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    took = perf_counter() - began
    _publish(given, results, took, (procfs.foreign_seconds() - foreign) / took)
    return 0


def _publish(given: argparse.Namespace, results: measure.Results, took: float, foreign_cores: float) -> None:
    rows, store_rows = report.quantities(results), report.store_quantities(results)
    run = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": report.machine(),
        "rounds": given.rounds,
        "seconds_per_slice": given.seconds,
        "took_seconds": round(took),
        "foreign_cores": round(max(0.0, foreign_cores), 2),  # two clocks: on an idle machine they may cross
    }
    section = f"{report.caption(run)}\n\n{report.table(rows)}\n\n{report.store_table(store_rows)}"
    print(json.dumps(report.as_json(rows, store_rows, run), indent=2) if given.json else section)
    if given.write:
        DOCUMENT.write_text(report.with_section(DOCUMENT.read_text(), section))


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)  # as an exception, so that every child is ended on the way out


if __name__ == "__main__":
    sys.exit(main())
