"""A log that cannot be written costs its lines, and neither a request nor the process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from proxy.logs import LOST, Sink
from tests.cli.command import PATIENCE, TAILFOLD, environment


@contextmanager
def full_disk() -> Iterator[int]:
    with open("/dev/full", "wb") as full:
        yield full.fileno()


@contextmanager
def nobody_reads() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("place", [full_disk, nobody_reads])
def test_requests_are_answered_and_the_end_is_clean_where_no_line_can_be_written(
    tmp_path: Path, place: object, workers: str, style: str
) -> None:
    flags = (
        "--port",
        "0",
        "--workers",
        workers,
        "--log-format",
        style,
        "--upstream",
        "http://127.0.0.1:9/v1",
    )
    assert callable(place)
    with place() as errors:
        process = subprocess.Popen(
            [*TAILFOLD, "serve", *flags],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        host = process.stdout.readline().rpartition("/")[2].strip()
        connection = HTTPConnection(host, timeout=PATIENCE)
        for _ in range(4):  # over one connection, and each leaves a line
            connection.request("POST", "/v1/chat/completions", b'{"model":"m","messages":[]}')
            answer = connection.getresponse()
            assert answer.status == 502
            assert json.loads(answer.read())["error"]["type"] == "tailfold_error"
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Failing(io.BytesIO):
    fails = False

    def write(self, line: object) -> int:
        if self.fails:
            raise OSError(28, "No space left on device")
        assert isinstance(line, bytes)
        return super().write(line)


def test_the_next_line_that_can_be_written_says_how_many_were_lost() -> None:
    file = Failing()
    sink = Sink(file)
    sink.write(b"one\n")
    file.fails = True
    for line in (b"two\n", "three\n"):
        sink.write(line)
    file.fails = False
    sink.write("fo\udc80ur\n")
    sink.write(b"five\n")
    one, lost, four, five = file.getvalue().splitlines()
    assert (one, four, five) == (b"one", b"fo\\udc80ur", b"five")
    said = json.loads(lost)
    assert (said["event"], said["lines"], said["level"]) == (LOST, 2, "warning")
