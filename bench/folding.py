"""python -m bench.folding: long conversations in small windows, and what other ways of sending them cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from bench import baselines, playback, report, traces
from bench.playback import ANSWER, Case, Replayed, Turn
from bench.processes import ROOT, BenchmarkFailed
from bench.prompts import CACHED_PRICE, SUMMARY_INPUT_PRICE, SUMMARY_OUTPUT_PRICE
from bench.reckoning import ALL, FULL, OURS, WAYS, Figures, Row, figures
from proxy.fold.lengths import LEAST_TOKENS

DOCUMENT = ROOT / "docs" / "folding.md"

SHARES = (0.25, 0.5)
TURNS = 60  # of a conversation, unless all are asked for
SHOWN = 20  # refusals that are told of one by one


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.folding", description="Replay recorded conversations in windows that they do not fit."
    )
    parser.add_argument("--traces", type=Path, default=traces.FOLDER, help="where the recordings are")
    parser.add_argument("--all", action="store_true", help=f"every turn, not the first {TURNS} of each")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="recordings of these kinds: aider, beam, …")
    parser.add_argument("--at-once", type=int, default=8, help="conversations that go on at one time (8)")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two turns (0.1)")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/folding.md")
    given = parser.parse_args()
    if given.at_once < 1 or given.pause < 0:
        parser.error("--at-once must be positive, --pause not negative")
    if given.only and given.write:
        parser.error("some of the recordings are too few to be written down")
    return given


def main() -> int:
    given = arguments()
    recorded = traces.by_kind(given.traces)
    kinds = {kind: several for kind, several in recorded.items() if kind in (given.only or recorded)}
    cases = playback.cases(kinds, SHARES, None if given.all else TURNS)
    if not cases:
        print(f"bench.folding: {nothing_to_replay(given.traces, recorded, given.only)}", file=sys.stderr)
        return 2
    playback.quiet()
    began = perf_counter()
    try:
        replayed = asyncio.run(playback.replay(cases, at_once=given.at_once, pause=given.pause))
        found = figures(replayed)
    except BenchmarkFailed as failure:
        print(f"bench.folding failed: {failure}", file=sys.stderr)
        return 1
    left_out = sum(map(len, kinds.values())) - len(cases) // len(SHARES)
    run = Run(left_out, None if given.all else TURNS, given.pause, perf_counter() - began)
    return _publish(given, replayed, found, run)


def nothing_to_replay(folder: Path, recorded: Collection[str], only: Sequence[str] | None) -> str:
    if not folder.is_dir():
        found = f"the folder {folder} does not exist"
    elif not recorded:
        found = f"the folder {folder} has no file *.jsonl"
    elif only and not {*only} & {*recorded}:
        found = f"the folder {folder} has {', '.join(recorded)}, but not {', '.join(only)}"
    else:
        found = f"in those of the folder {folder} no turn was recorded"
    return f"there are no recorded conversations to replay: {found}.\n{traces.FORMAT}"


@dataclass(frozen=True, slots=True)
class Run:
    left_out: int  # conversations that the provider refuses in any window
    most_turns: int | None
    pause: float
    seconds: float


def _publish(given: argparse.Namespace, replayed: Sequence[Replayed], found: Sequence[Row], run: Run) -> int:
    tables = section(found, run)
    print(json.dumps(as_json(found, run), indent=2) if given.json else tables)
    if given.write:
        DOCUMENT.write_text(report.with_section(DOCUMENT.read_text(), tables))
    avoidable = [(one.case, turn) for one in replayed for turn in one.avoidable()]
    for case, turn in avoidable[:SHOWN]:
        print(complaint(case, turn), file=sys.stderr)
    return 1 if avoidable else 0


def complaint(case: Case, turn: Turn) -> str:
    received = turn.received
    sizes = f"{received.tokens} tokens, {received.must_be_kept()} to be kept, window {case.window}"
    where = f"{case.conversation.name} at {_percent(case.share)}, {len(received.pieces)} messages"
    return f"{where} ({sizes}): {turn.status} {turn.error}"


# What is shown of it.


def section(found: Sequence[Row], run: Run) -> str:
    """All that is needed to read the tables stands with them, as it changes with them."""
    return "\n\n".join([caption(found, run), refusals(found), ways(found), kinds_by_cost(found), TERMS])


def caption(found: Sequence[Row], run: Run) -> str:
    today = datetime.now(UTC).date().isoformat()
    turns = "all turns" if run.most_turns is None else f"at most {run.most_turns} turns of each"
    replayed = max(row.figures.conversations for row in found)
    left_out = f"; {run.left_out} more are refused in any window" if run.left_out else ""
    return (
        f"{today}: {report.machine()}. {replayed} recorded conversations{left_out}; {turns}, {run.pause:g} s "
        f"between an answer and the next turn. The run took {run.seconds:.0f} s."
    )


def refusals(found: Sequence[Row]) -> str:
    requests = ["conversations", "requests", "refused, cannot fit", "refused otherwise", "recovered"]
    folds = ["folds", "of them without a model", "summary calls"]
    tokens = ["tokens received", "tokens sent", "prefix reused"]
    head = ["recordings", "rest that fits", *requests, *folds, *tokens]
    return _table(head, [[*_name(row), *_counts(row.figures)] for row in found])


def _counts(figures: Figures) -> list[str]:
    ours, received = figures.bills[OURS], figures.bills[FULL].sent
    before = [figures.conversations, figures.requests, figures.unavoidable]
    after = [figures.recovered, figures.folds, figures.without_model, ours.calls, received, ours.sent]
    otherwise = f"**{figures.avoidable:,}: FAIL**" if figures.avoidable else "0: pass"
    return [*map(_number, before), otherwise, *map(_number, after), _percent(ours.reuse)]


def ways(found: Sequence[Row]) -> str:
    tokens = ["tokens sent", "prefix reused", "summary calls"]
    head = ["all recordings", "rest that fits", *tokens, "cost with prompt caching", "cost without"]
    everything = [row for row in found if row.kind == ALL]
    return _table(head, [[way, *_way(row, way)] for row in everything for way in WAYS])


def _way(row: Row, way: str) -> list[str]:
    bill = row.figures.bills[way]
    costs = [f"{row.figures.cost(way, caching=caching):.1f}" for caching in (True, False)]
    return [_percent(row.share), _number(bill.sent), _percent(bill.reuse), _number(bill.calls), *costs]


def kinds_by_cost(found: Sequence[Row]) -> str:
    head = ["cost with prompt caching (without)", "rest that fits", *WAYS]
    return _table(head, [[*_name(row), *(_cost(row.figures, way) for way in WAYS)] for row in found])


def _cost(figures: Figures, way: str) -> str:
    return f"{figures.cost(way, caching=True):.1f} ({figures.cost(way, caching=False):.1f})"


TERMS = f"""\
- **Window**: tools, system messages and a share of everything else that the conversation's longest
  request holds, and {ANSWER} tokens for the answer (`max_tokens` of every request); at least
  {playback.FLOOR:,} tokens. All tokens are the provider's own count.
- **Refused, cannot fit**: system messages, tools, the newest user message and the answer do not fit by
  themselves. Refused requests are in no other figure. **Recovered**: the provider refused what was
  sent first, and the client got its answer all the same.
- **Prefix reused**: how much of a request the conversation's next begins with, in whole messages.
- **Cost**: 100 is the whole history without caching. A cached token costs {CACHED_PRICE:g} of another; cached
  is what an earlier request of the conversation began with, from 1,024 tokens on and in steps of 128.
  Summary calls are in it, at {SUMMARY_INPUT_PRICE:g} of the price for a token read and
  {SUMMARY_OUTPUT_PRICE:g} for one written (gpt-4.1-mini beside gpt-4.1). The answers, which are the same for
  all, are not.
- **Full history** needs a window that holds it. **Sliding window**: system messages and the newest
  messages that fit Tailfold's own room, calls with their results. **Folding on every turn**, past
  Tailfold's own trigger: the client sends everything, and all but the last {baselines.RETAINED:,} tokens are
  summed up anew, at the length of Tailfold's summaries in the same conversation ({LEAST_TOKENS} tokens
  where it made none). **At best**, each of its summary calls finds the transcript of the last one cached,
  which takes a provider that finds known beginnings within a message. All but Tailfold are
  computed, for the same requests."""


def _name(row: Row) -> list[str]:
    return [row.kind, _percent(row.share)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _number(number: int) -> str:
    return f"{number:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def as_json(found: Sequence[Row], run: Run) -> dict[str, Any]:
    return {"run": asdict(run), "rows": [_row_as_json(row) for row in found]}


def _row_as_json(row: Row) -> dict[str, Any]:
    costs = {
        way: {"caching": row.figures.cost(way, caching=True), "plain": row.figures.cost(way, caching=False)}
        for way in WAYS
    }
    return asdict(row) | {"cost": costs, "prefix_reuse": {w: row.figures.bills[w].reuse for w in WAYS}}


if __name__ == "__main__":
    sys.exit(main())
