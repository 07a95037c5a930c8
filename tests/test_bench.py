"""The benchmark runs, ends and counts right. No time is ever asserted: that would test the machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pytest

from bench import answers, figures, load, procfs, report
from bench.conversation import VARIANTS, chat_body, chat_requests
from bench.figures import Comparison, Limit, Quantity, Spread
from bench.processes import ROOT
from bench.upstream import FixedAnswers

linux_only = pytest.mark.skipif(not procfs.available(), reason="the benchmark reads /proc")
MARK = "BENCH_TEST_MARK"


def started(*arguments: str, mark: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_behind(mark: str) -> list[int]:
    """Every process that inherited the mark, so also those that nobody waits for any more."""
    wanted = f"{MARK}={mark}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


@linux_only
def test_a_tiny_run_measures_every_subject_and_leaves_no_process_behind() -> None:
    mark = uuid4().hex
    with started("--quick", "--json", "--rounds", "1", "--seconds", "0.02", mark=mark) as bench:
        out, err = bench.communicate(timeout=120)
    assert bench.returncode == 0, err
    rows = json.loads(out)["quantities"]
    assert len(rows) == 16
    for row in rows:
        assert {"bare", "tailfold"} <= row["median"].keys(), row["name"]
        assert all(value > 0 for value in row["median"].values()), row["name"]
    assert sum(row["limit"] is not None for row in rows) == 6
    shared = json.loads(out)["shared_store"]
    assert len(shared) == 10
    assert all(row["median"].keys() == {"memory://", "Valkey"} for row in shared)
    assert [row["limit"] for row in shared] == [500] * 5 + [None] * 5
    assert left_behind(mark) == []


@linux_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_run(number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored here, and so in every child")
    mark = uuid4().hex
    with started("--seconds", "60", mark=mark) as bench:
        assert bench.stderr
        assert bench.stderr.readline() == "warming up\n"
        assert len(left_behind(mark)) >= 5
        bench.send_signal(number)
        assert bench.wait(timeout=30) != 0
    # Who was killed could not wait for its children; they end by themselves, but a moment later.
    patience = monotonic() + (30 if number is signal.SIGKILL else 0)
    while left_behind(mark) and monotonic() < patience:
        sleep(0.05)
    assert left_behind(mark) == []


def test_figures_are_compared_round_by_round_before_the_median_is_taken() -> None:
    # The second round was slow for both; the quotient of the medians would be 30 / 25.
    spread = figures.paired([20, 60, 30], [10, 40, 25], figures.ratio)
    assert spread == Spread(middle=1.5, lower=1.35, upper=1.75)
    assert figures.paired([5, 9, 7], [1, 2, 3], figures.difference) == Spread(4, 4, 5.5)


def test_a_spread_is_the_median_and_the_middle_half_so_one_bad_round_does_not_show() -> None:
    assert figures.spread([1, 2, 3, 4, 900]) == Spread(3, 2, 4)
    assert figures.spread([7]) == Spread(7, 7, 7)


def test_rounds_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError):
        figures.paired([1, 2], [1], figures.ratio)


def test_every_subject_comes_first_once() -> None:
    turns = [figures.rotated(["a", "b", "c"], number) for number in range(4)]
    assert turns == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


CPU = Quantity("CPU", "µs", {"direct": [10], "bare": [100], "tailfold": [120]}, limit=Limit(1.25))
WAIT = Quantity(
    "Wait",
    "µs",
    {"direct": [50, 60], "bare": [350, 360], "tailfold": [1450, 1480]},
    Comparison.DIFFERENCE,
    Limit(1000),
)
START = Quantity("Start", "s", {"bare": [0.2], "tailfold": [1.5]}, limit=Limit(1, absolute=True), decimals=2)


def test_a_limit_judges_the_ratio_the_difference_or_the_value() -> None:
    assert (CPU.judged(), CPU.passes()) == (1.2, True)
    assert (WAIT.judged(), WAIT.passes()) == (1110, False)
    assert (START.judged(), START.passes()) == (1.5, False)
    assert Quantity("free", "", {"tailfold": [1]}).passes() is None


def test_the_table_shows_medians_additions_comparisons_and_verdicts() -> None:
    assert report.table([CPU, WAIT, START]).splitlines() == [
        "|  | direct | bare | tailfold | tailfold : bare | target |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        "| CPU (µs) | 10 | 100 | 120 | 1.20 \N{MULTIPLICATION SIGN} (1.20 … 1.20) "
        "| ≤ 1.25 \N{MULTIPLICATION SIGN} bare: pass |",
        "| Wait (µs) | 55 | +300 | +1,410 | +1,110 µs (+1,105 … +1,115) | ≤ 1,000 µs over bare: **FAIL** |",
        "| Start (s) | — | 0.20 | 1.50 | 7.50 \N{MULTIPLICATION SIGN} (7.50 … 7.50) | ≤ 1 s: **FAIL** |",
    ]


def test_a_subject_that_is_not_installed_has_no_column() -> None:
    assert "nginx" not in report.table([CPU])
    with_nginx = Quantity("CPU", "µs", {**CPU.values, "nginx": [40]})
    assert "| tailfold : nginx |" in report.table([with_nginx])


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    document = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.with_section(document, "new") == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    with pytest.raises(ValueError):
        report.with_section("no markers", "new")


@pytest.mark.parametrize("kilobytes", [1, 40, 400])
def test_bodies_have_their_size_and_differ(kilobytes: int) -> None:
    bodies = {chat_body(kilobytes, variant, stream=True) for variant in range(VARIANTS)}
    assert len(bodies) == VARIANTS
    for body in bodies:
        assert abs(len(body) - kilobytes * 1024) < 100
        assert json.loads(body)["stream"] is True


def test_a_request_declares_the_length_of_its_body() -> None:
    for request in chat_requests(8080, 1, stream=False):
        head, _, body = request.wire.partition(b"\r\n\r\n")
        assert load.body_length(head.lower()) == len(body)


def test_a_chunked_body_is_whole_only_with_its_last_chunk() -> None:
    wire = b"".join((answers.PLAIN_STREAM.opening, *answers.PLAIN_STREAM.following))
    start = wire.index(b"\r\n\r\n") + 4
    assert load.unchunked(wire, start) in answers.ACCEPTABLE_STREAMS
    assert all(load.unchunked(wire[:end], start) is None for end in range(start, len(wire)))
    with pytest.raises(load.WrongAnswer):
        load.unchunked(wire + b"0\r\n\r\n", start)


def test_content_that_looks_like_the_last_chunk_does_not_end_a_body() -> None:
    assert load.unchunked(b"7\r\nab0\r\n\r\n", 0) is None
    assert load.unchunked(b"7\r\nab0\r\n\r\n\r\n0\r\n\r\n", 0) == b"ab0\r\n\r\n"


def test_a_stream_that_shows_the_usage_nobody_asked_for_is_not_acceptable() -> None:
    wire = b"".join((answers.USAGE_STREAM.opening, *answers.USAGE_STREAM.following))
    body = load.unchunked(wire, wire.index(b"\r\n\r\n") + 4)
    assert body is not None
    assert body not in answers.ACCEPTABLE_STREAMS


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def job(server: asyncio.Server, *, stream: bool = False) -> load.Job:
    port = port_of(server)
    return load.Job(
        ports=[port],
        kilobytes=40,
        stream=stream,
        pause_ms=0,
        concurrency=3,
        seconds=5,
        most=20,
        pids=[os.getpid()],
    )


@linux_only
@pytest.mark.parametrize("stream", [False, True])
async def test_the_load_stops_at_the_number_of_requests_it_was_given(stream: bool) -> None:
    server = await asyncio.get_running_loop().create_server(FixedAnswers, "127.0.0.1", 0)
    async with server:
        sample = await load.perform(job(server, stream=stream))
    assert sample.requests == 20


@linux_only
async def test_a_growing_conversation_goes_to_its_servers_in_turn() -> None:
    received: list[tuple[int, list[dict[str, str]]]] = []

    class Noted(FixedAnswers):
        def __init__(self, place: int) -> None:
            super().__init__()
            self._place = place

        def _answer(self) -> None:
            body = bytes(self._buffer[: self._end]).partition(b"\r\n\r\n")[2]
            received.append((self._place, json.loads(body)["messages"]))
            super()._answer()

    loop = asyncio.get_running_loop()
    one = await loop.create_server(lambda: Noted(0), "127.0.0.1", 0)
    other = await loop.create_server(lambda: Noted(1), "127.0.0.1", 0)
    async with one, other:
        ports = [port_of(one), port_of(other)]
        sample = await load.perform(replace(job(one), ports=ports, kilobytes=2, growing="a talk", turns=6))
    assert sample.requests == 4  # without the opening one of each server
    assert [place for place, _ in received] == [0, 1, 0, 1, 0, 1]
    for (_, before), (_, after) in pairwise(received):
        assert after[: len(before)] == before
        assert [message["role"] for message in after[len(before) :]] == ["assistant", "user"]


@pytest.mark.parametrize("size", [1024, 40 * 1024, 400 * 1024])
def test_the_bill_for_a_body_of_the_benchmark_is_about_right_and_leaves_the_answer_s_length(
    size: int,
) -> None:
    bill = json.loads(answers.billed(answers.ANSWER_BODY, size))["usage"]["prompt_tokens"]
    assert bill == pytest.approx(size * 0.27, rel=0.05)
    assert len(answers.billed(answers.ANSWER_BODY, size)) == len(answers.ANSWER_BODY)


@linux_only
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        answers.ANSWER + b"x",
        answers.ANSWER[:-1],  # and then the connection is closed
        b"",
    ],
)
async def test_the_first_wrong_answer_ends_the_job(answer: bytes) -> None:
    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(wrong, "127.0.0.1", 0) as server:
        with pytest.raises(load.WrongAnswer):
            await load.perform(job(server))
