"""The table: results as rows, rows as Markdown or JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from os import cpu_count
from pathlib import Path

from bench import measure
from bench.answers import EVENTS_IN_A_STREAM
from bench.figures import Comparison, Limit, Quantity, Spread
from bench.load import Sample
from bench.measure import SIZES, Results, Workload
from bench.subjects import BARE, DIRECT, NGINX, PAIR, SHARED, SHARED_PAIR, TAILFOLD

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

CPU_LIMITS = {400: Limit(2.0)}
FIRST_EVENT_LIMIT = Limit(1000)
START_LIMIT = Limit(1.0, absolute=True)
RESIDENT_LIMIT = Limit(80, absolute=True)
STORE_LIMIT = Limit(500)

MEMORY, VALKEY = "memory://", "Valkey"

_MICRO = 1e6
_MEGABYTE = 1024 * 1024
_TIMES = "\N{MULTIPLICATION SIGN}"


def quantities(results: Results) -> list[Quantity]:
    return [
        *(_cpu(results, size) for size in SIZES),
        _cpu_of_streams(results),
        *(_rate(results, size) for size in SIZES),
        *(_latency(results, size) for size in SIZES),
        *(_first_event(results, size) for size in SIZES),
        *_memory(results),
        Quantity(
            "Start-up until the port answers", "s", dict(results.start_seconds), limit=START_LIMIT, decimals=2
        ),
    ]


def _cpu_per_request(sample: Sample) -> float:
    return sample.cpu_seconds / sample.requests * _MICRO


def _cpu(results: Results, size: int) -> Quantity:
    values = results.of(measure.throughput(size), _cpu_per_request)
    return Quantity(f"CPU per request, {size} KB", "µs", dict(values), limit=CPU_LIMITS.get(size))


def _cpu_of_streams(results: Results) -> Quantity:
    values = results.of(measure.PACED_STREAMS, _cpu_per_request)
    return Quantity(
        f"CPU per stream of {EVENTS_IN_A_STREAM} events, {measure.PACED_SIZE} KB", "µs", dict(values)
    )


def _rate(results: Results, size: int) -> Quantity:
    values = results.of(measure.throughput(size), lambda sample: sample.requests / sample.seconds)
    return Quantity(f"Requests/s at concurrency {measure.CONCURRENCY}, {size} KB", "", dict(values))


def _latency(results: Results, size: int) -> Quantity:
    values = results.of(measure.latency(size), lambda sample: sample.latency * _MICRO)
    return Quantity(f"Added p50 latency, {size} KB", "µs", dict(values), Comparison.DIFFERENCE)


def _first_event(results: Results, size: int) -> Quantity:
    values = results.of(measure.first_event(size), lambda sample: sample.first_byte * _MICRO)
    name = f"Added p50 time to first SSE byte, {size} KB"
    return Quantity(name, "µs", dict(values), Comparison.DIFFERENCE, FIRST_EVENT_LIMIT)


def _memory(results: Results) -> list[Quantity]:
    before = {name: [size / _MEGABYTE for size in sizes] for name, sizes in results.resident_at_start.items()}
    after = {name: [size / _MEGABYTE] for name, size in results.resident_at_end.items() if name != DIRECT}
    return [
        Quantity("Resident before the first request", "MB", dict(before), limit=RESIDENT_LIMIT),
        Quantity("Resident after the run", "MB", dict(after)),
    ]


def store_quantities(results: Results) -> list[Quantity]:
    """What a shared store adds to the same Tailfold without one."""
    growing = measure.GROWING
    return [
        *(_store_latency(results, f"{size} KB, known", measure.latency(size)) for size in SIZES),
        _store_latency(results, "a growing conversation", growing),
        _store_latency(results, "a growing conversation, two replicas in turn", growing, PAIR, SHARED_PAIR),
        *(_store_cpu(results, f"{size} KB, known", measure.throughput(size)) for size in SIZES),
        _store_cpu(results, "a growing conversation", growing),
        _store_cpu(results, "a growing conversation, two replicas in turn", growing, PAIR, SHARED_PAIR),
    ]


def _store_latency(
    results: Results, what: str, workload: Workload, without: str = TAILFOLD, with_it: str = SHARED
) -> Quantity:
    values = results.of(workload, lambda sample: sample.latency * _MICRO)
    pair = {MEMORY: values[without], VALKEY: values[with_it]}
    comparison = Comparison.DIFFERENCE
    name = f"p50 latency, {what}"
    return Quantity(name, "µs", pair, comparison, STORE_LIMIT, judged_subject=VALKEY, yardstick=MEMORY)


def _store_cpu(
    results: Results, what: str, workload: Workload, without: str = TAILFOLD, with_it: str = SHARED
) -> Quantity:
    values = results.of(workload, _cpu_per_request)
    pair = {MEMORY: values[without], VALKEY: values[with_it]}
    return Quantity(f"CPU per request, {what}", "µs", pair, judged_subject=VALKEY, yardstick=MEMORY)


def store_table(rows: Sequence[Quantity]) -> str:
    lines = [["", MEMORY, VALKEY, f"{VALKEY} : {MEMORY}", "target"], ["---", "---:", "---:", "---:", "---"]]
    for row in rows:
        cells = [_middle(row, name) for name in (MEMORY, VALKEY)]
        lines.append([_label(row), *cells, _compared(row, MEMORY), _verdict(row)])
    return _markdown(lines)


def table(rows: Sequence[Quantity]) -> str:
    """Markdown. Where a proxy adds time, its column shows what it adds; direct is shown as it is."""
    names = [name for name in (DIRECT, BARE, NGINX, TAILFOLD) if any(name in row.values for row in rows)]
    others = [name for name in names if name not in (DIRECT, TAILFOLD)]
    head = ["", *names, *(f"tailfold : {name}" for name in others), "target"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 2) + ["---"]]
    for row in rows:
        cells = [_cell(row, name) for name in names]
        lines.append([_label(row), *cells, *(_compared(row, name) for name in others), _verdict(row)])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _label(row: Quantity) -> str:
    return f"{row.name} ({row.unit})" if row.unit else row.name


def _cell(row: Quantity, name: str) -> str:
    if row.comparison is Comparison.DIFFERENCE and name != DIRECT:
        added = row.added(name)
        return f"{added.middle:+,.{row.decimals}f}" if added else "—"
    return _middle(row, name)


def _middle(row: Quantity, name: str) -> str:
    middle = row.middle(name)
    return "—" if middle is None else f"{middle:,.{row.decimals}f}"


def _compared(row: Quantity, other: str) -> str:
    spread = row.against(other)
    if spread is None:
        return "—"
    if row.comparison is Comparison.DIFFERENCE:
        return f"{spread.middle:+,.0f} {row.unit} ({spread.lower:+,.0f} … {spread.upper:+,.0f})"
    return f"{spread.middle:.2f} {_TIMES} ({spread.lower:.2f} … {spread.upper:.2f})"


def _verdict(row: Quantity) -> str:
    if row.limit is None:
        return ""
    unit = row.unit if row.limit.absolute or row.comparison is Comparison.DIFFERENCE else _TIMES
    over = f" {row.yardstick}" if unit == _TIMES else f" over {row.yardstick}"
    subject = "" if row.limit.absolute else over
    verdict = {True: "pass", False: "**FAIL**", None: "not measured"}[row.passes()]
    return f"≤ {row.limit.most:,g} {unit}{subject}: {verdict}"


def machine() -> str:
    """Enough to read the figures by; nothing that names the machine."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop"))
    return f"{cpu_count()} cores ({model}), Python {platform.python_version()}, {libraries}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def as_json(
    rows: Sequence[Quantity], store_rows: Sequence[Quantity], run: dict[str, object]
) -> dict[str, object]:
    return {
        **run,
        "quantities": [_row_as_json(row) for row in rows],
        "shared_store": [_row_as_json(row) for row in store_rows],
    }


def _row_as_json(row: Quantity) -> dict[str, object]:
    return {
        "name": row.name,
        "unit": row.unit,
        "rounds": {name: list(values) for name, values in row.values.items()},
        "median": {name: row.middle(name) for name in row.values},
        "comparison": row.comparison.value,
        "compared_to": {
            name: _spread_as_json(row.against(name)) for name in row.values if name != row.judged_subject
        },
        "limit": row.limit.most if row.limit else None,
        "passes": row.passes(),
    }


def _spread_as_json(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"median": spread.middle, "lower_quartile": spread.lower, "upper_quartile": spread.upper}


def with_section(document: str, section: str) -> str:
    """The document with everything between its markers replaced."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} … {END} in the document")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def caption(run: dict[str, object]) -> str:
    return (
        f"{run['date']}: {run['machine']}. {run['rounds']} rounds with slices of "
        f"{run['seconds_per_slice']} s; the run took {run['took_seconds']} s, "
        f"during which other work kept {run['foreign_cores']} cores busy."
    )
