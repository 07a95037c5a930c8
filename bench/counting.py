"""python -m bench.counting: how right the counter is, on recorded bills, and how fast."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from bench import report, traces
from bench.conversation import chat_body
from bench.processes import ROOT, BenchmarkFailed
from bench.replay import TENANT, Accuracy, Observation, accuracy, count, counting_parts, replay, surely
from bench.traces import Conversation
from proxy.counting.counter import Counter
from proxy.usage import Usage

DOCUMENT = ROOT / "docs" / "counting.md"

MESSAGES = 1000
COLD_LIMIT, WARM_LIMIT = 500.0, 5.0  # milliseconds

# As shares of the bill.
MEAN_LIMIT, MODEL_MEAN_LIMIT, P99_LIMIT = 0.01, 0.02, 0.1
COLD_ERROR_LIMIT = 0.05

OVERALL = "overall"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.counting", description="Count recorded requests before their bills, and a long one fast."
    )
    parser.add_argument("--traces", type=Path, default=traces.FOLDER, help="where the recordings are")
    parser.add_argument("--orders", type=int, default=5, help="in how many orders they are replayed (5)")
    parser.add_argument(
        "--rounds", type=int, default=9, help="how often the long conversation is counted (9)"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/counting.md")
    given = parser.parse_args()
    if given.orders < 1 or given.rounds < 1:
        parser.error("--orders and --rounds must be positive")
    return given


def main() -> int:
    given = arguments()
    recorded = traces.conversations(given.traces)
    if missing := traces.missing(given.traces):
        consequence = "nothing is written" if given.write else "the tables are not whole"
        print(
            f"bench.counting: {' and '.join(missing)} not found in {given.traces}, {consequence}",
            file=sys.stderr,
        )
        if given.write:  # tables without them would look like a change for the better or the worse
            return 2
    try:
        found = by_model(asyncio.run(replayed(recorded, given.orders)))
        speeds = asyncio.run(timed(given.rounds))
    except BenchmarkFailed as failure:
        print(f"bench.counting failed: {failure}", file=sys.stderr)
        return 1
    tables = section(recorded, found, speeds, given.orders)
    print(json.dumps(as_json(found, speeds), indent=2) if given.json else tables)
    if given.write:
        DOCUMENT.write_text(report.with_section(DOCUMENT.read_text(), tables))
    return 0


# How right.


async def replayed(recorded: Sequence[Conversation], orders: int) -> list[Observation]:
    """As recorded and then shuffled, each time from nothing: what is learned first must not decide."""
    observed = []
    for number in range(orders if recorded else 0):
        order = list(recorded)
        if number:
            Random(number).shuffle(order)
        observed += await replay(order)
    return observed


def by_model(observed: Sequence[Observation]) -> dict[str, Accuracy]:
    models = sorted({one.conversation.model for one in observed})
    found = {m: accuracy([one for one in observed if one.conversation.model == m]) for m in models}
    return found | ({OVERALL: accuracy(observed)} if observed else {})


# How fast.


@dataclass(frozen=True, slots=True)
class Speed:
    """From a body's bytes to its count, in milliseconds."""

    cold: float  # never seen before
    warm: float  # with one message more
    restarted: float  # by a new process, from the store


async def timed(rounds: int) -> list[Speed]:
    return [await _round(number) for number in range(rounds)]


async def _round(number: int) -> Speed:
    """Every round another conversation, and nothing remembered from the one before."""
    first, second = long_conversation(MESSAGES, number), long_conversation(MESSAGES + 1, number)
    async with counting_parts() as parts:
        counter = parts.counter()
        cold = await _milliseconds(counter, first)
        await parts.store.drain(timeout=10)  # the answer takes longer than the store
        warm = await _milliseconds(counter, second)
        await parts.store.drain(timeout=10)
        return Speed(cold, warm, await _milliseconds(parts.counter(), second))


async def _milliseconds(counter: Counter, body: bytes) -> float:
    began = perf_counter()
    counted = await count(counter, body)
    took = perf_counter() - began
    surely(counted)
    counter.record(TENANT, counted, Usage(counted.count.tokens, 0))
    return 1000 * took


def long_conversation(length: int, variant: int) -> bytes:
    """Of messages of about 1 KB each; a longer one begins like a shorter."""
    kilobytes = 2 + MESSAGES * 11 // 10
    body = json.loads(chat_body(kilobytes, variant, stream=False))
    return json.dumps(body | {"messages": body["messages"][:length]}, ensure_ascii=False).encode()


# What is shown of it.


def section(
    recorded: Sequence[Conversation], found: dict[str, Accuracy], speeds: Sequence[Speed], orders: int
) -> str:
    today = datetime.now(UTC).date().isoformat()
    parts = [f"{today}: {report.machine()}."]
    if found:
        parts += [
            f"{len(recorded)} recorded conversations, replayed in {orders} orders, each from nothing.",
            after_the_first(found, orders),
            before_the_first(found, recorded),
        ]
    return "\n\n".join([*parts, speed_table(speeds)])


def after_the_first(found: dict[str, Accuracy], orders: int) -> str:
    head = [
        "requests after the first of a conversation",
        "requests",
        "mean error",
        "p99",
        "largest",
        "within its uncertainty",
        "mean uncertainty",
        "target",
    ]
    rows = [
        [
            name,
            f"{figures.later // orders:,}",
            _percent(figures.mean),
            _percent(figures.p99),
            _percent(figures.most),
            _percent(figures.within, 0),
            "± " + _percent(figures.uncertainty),
            _verdict(figures, MEAN_LIMIT if name == OVERALL else MODEL_MEAN_LIMIT),
        ]
        for name, figures in found.items()
    ]
    return _table(head, rows)


def before_the_first(found: dict[str, Accuracy], recorded: Sequence[Conversation]) -> str:
    head = [
        "nothing learned yet",
        "o200k_base at face value",
        "first request",
        "every request",
        "growth of a conversation",
        "first request of a later conversation",
        "target",
    ]
    rows = [
        [
            name,
            _percent(figures.plain),
            _percent(figures.cold_first),
            _percent(figures.cold),
            _percent(figures.cold_growth),
            "—" if figures.opening is None else _percent(figures.opening),
            _cold_verdict(figures, whole=all(one.whole for one in recorded if one.model == name)),
        ]
        for name, figures in found.items()
        if name != OVERALL  # what is not in a recording cannot be added up with what is
    ]
    return _table(head, rows)


def speed_table(speeds: Sequence[Speed]) -> str:
    def row(what: str, values: list[float], limit: float | None) -> list[str]:
        middle = median(values)
        target = "" if limit is None else f"< {limit:g} ms: {_pass(middle < limit)}"
        return [what, f"{middle:,.1f} ms", f"{max(values):,.1f} ms", target]

    return _table(
        [f"{MESSAGES:,} messages of 1 KB", "median", "slowest", "target"],
        [
            row("cold: all of them counted", [one.cold for one in speeds], COLD_LIMIT),
            row("warm: one more than before", [one.warm for one in speeds], WARM_LIMIT),
            row("after a restart: from the store in memory", [one.restarted for one in speeds], None),
        ],
    )


def _verdict(figures: Accuracy, mean_limit: float) -> str:
    kept = figures.mean < mean_limit and figures.p99 < P99_LIMIT
    return f"mean < {_percent(mean_limit, 0)}, p99 < {_percent(P99_LIMIT, 0)}: {_pass(kept)}"


def _cold_verdict(figures: Accuracy, *, whole: bool) -> str:
    """Tools that were billed but not recorded are no error of the count, and hide whether there is one."""
    if not whole:
        return "not judged: tools not recorded"
    judged = {"first": figures.cold_first, "every": figures.cold}
    verdicts = [f"{name} {_pass(error < COLD_ERROR_LIMIT)}" for name, error in judged.items()]
    return f"< {_percent(COLD_ERROR_LIMIT, 0)}: {', '.join(verdicts)}"


def _pass(kept: bool) -> str:
    return "pass" if kept else "**FAIL**"


def _percent(share: float, decimals: int = 2) -> str:
    return f"{100 * share:.{decimals}f} %"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def as_json(found: dict[str, Accuracy], speeds: Sequence[Speed]) -> dict[str, Any]:
    return {
        "accuracy": {name: asdict(figures) for name, figures in found.items()},
        "speed_ms": [asdict(speed) for speed in speeds],
    }


if __name__ == "__main__":
    sys.exit(main())
