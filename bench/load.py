"""The load: raw HTTP/1.1 over keep-alive connections, in a process of its own.

python -m bench.load reads one job per line from standard input and writes one result per line, both JSON.
Every answer is compared with what the upstream sends; the first that differs ends the job with an error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import cast

import uvloop

from bench.answers import ACCEPTABLE_ANSWERS, ACCEPTABLE_STREAMS
from bench.conversation import chat_requests
from bench.procfs import cpu_seconds

# How long a job may take beyond its own time; loopback answers are far from it.
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Job:
    port: int
    kilobytes: int
    stream: bool
    pause_ms: int
    concurrency: int
    seconds: float
    most: int  # requests, whatever the time
    pids: list[int]  # whose CPU time is read just before the first and just after the last request


@dataclass(frozen=True, slots=True)
class Sample:
    requests: int
    seconds: float
    cpu_seconds: float
    latency: float  # median, of the whole answer
    first_byte: float  # median, of the answer's body


class WrongAnswer(Exception):
    """What came back is not what the upstream sends."""


class Volley:
    """What all connections of a job share: the requests, the time they have, and the results."""

    def __init__(self, job: Job) -> None:
        self.requests = chat_requests(job.port, job.kilobytes, stream=job.stream, pause_ms=job.pause_ms)
        self.acceptable = ACCEPTABLE_STREAMS if job.stream else ACCEPTABLE_ANSWERS
        self.latencies: list[float] = []
        self.first_bytes: list[float] = []
        self._connections: list[Connection] = []
        self._job = job
        self._until = 0.0
        self._left = 0
        self._busy = 0
        self._landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for number in range(self._job.concurrency):
            new = partial(Connection, self, number)
            _, connection = await loop.create_connection(new, "127.0.0.1", self._job.port)
            self._connections.append(connection)

    async def fly(self, seconds: float, most: int) -> None:
        """Keep every connection busy for this long; each sends one request at least."""
        self.latencies.clear()
        self.first_bytes.clear()
        self._landed = asyncio.get_running_loop().create_future()
        self._busy = len(self._connections)
        self._left = most
        self._until = perf_counter() + seconds
        for connection in self._connections:
            connection.send()
        await self._landed

    def answered(self, connection: Connection, latency: float, first_byte: float) -> None:
        self.latencies.append(latency)
        self.first_bytes.append(first_byte)
        self._left -= 1
        if self._left >= self._busy and perf_counter() < self._until:
            connection.send()
            return
        self._busy -= 1
        if not self._busy and not self._landed.done():
            self._landed.set_result(None)

    def failed(self, failure: Exception) -> None:
        if not self._landed.done():
            self._landed.set_exception(failure)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, volley: Volley, number: int) -> None:
        self._volley = volley
        self._next = number
        self._waiting = False
        self._received = b""
        self._body_start = 0
        self._length: int | None = None  # of the body; None while it is chunked
        self._sent_at = 0.0
        self._first_byte_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, failure: Exception | None) -> None:
        if self._waiting:
            self._volley.failed(WrongAnswer(f"connection lost after {len(self._received)} bytes: {failure}"))

    def close(self) -> None:
        self._waiting = False
        self._transport.abort()

    def send(self) -> None:
        requests = self._volley.requests
        self._next = (self._next + 1) % len(requests)
        self._received = b""
        self._body_start = 0
        self._first_byte_at = 0.0
        self._waiting = True
        self._sent_at = perf_counter()
        self._transport.write(requests[self._next])

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        self._received += data
        try:
            if not self._waiting:
                raise WrongAnswer(f"bytes that nobody asked for: {data[:80]!r}")
            if self._body_start or self._read_head():
                self._read_body(now)
        except (WrongAnswer, ValueError) as failure:
            self._waiting = False
            self._volley.failed(failure)

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._received.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswer(f"not a 200: {self._received[:300]!r}")
        self._body_start = end + 4
        self._length = body_length(self._received[:end].lower())
        return True

    def _read_body(self, now: float) -> None:
        if not self._first_byte_at and len(self._received) > self._body_start:
            self._first_byte_at = now
        body = self._body()
        if body is None:
            return
        if body not in self._volley.acceptable:
            raise WrongAnswer(f"another body than the upstream's, {len(body)} bytes: {body[:300]!r}")
        self._waiting = False
        self._volley.answered(self, now - self._sent_at, self._first_byte_at - self._sent_at)

    def _body(self) -> bytes | None:
        if self._length is None:
            return unchunked(self._received, self._body_start)
        missing = self._body_start + self._length - len(self._received)
        if missing < 0:
            raise WrongAnswer(f"{-missing} bytes too many")
        return None if missing else self._received[self._body_start :]


def body_length(head: bytes) -> int | None:
    """The declared length of a body, None for a chunked one; `head` in lower case."""
    start = head.find(b"\r\ncontent-length:")
    if start >= 0:
        end = head.find(b"\r\n", start + 2)
        return int(head[start + 17 : end if end >= 0 else len(head)])
    if b"\r\ntransfer-encoding: chunked" not in head:
        raise WrongAnswer("neither a length nor chunks")
    return None


def unchunked(received: bytes, position: int) -> bytes | None:
    """The content of a chunked body that starts at `position`, None while its end is not there."""
    if not received.endswith(b"0\r\n\r\n"):  # spares the walk for every piece but the last
        return None
    pieces: list[bytes] = []
    while True:
        line_end = received.find(b"\r\n", position)
        if line_end < 0:
            return None
        size = int(received[position:line_end], 16)
        position = line_end + 2 + size + 2
        if position > len(received):
            return None
        if size == 0:
            if position < len(received):
                raise WrongAnswer("bytes after the last chunk")
            return b"".join(pieces)
        pieces.append(received[line_end + 2 : position - 2])


async def perform(job: Job) -> Sample:
    volley = Volley(job)
    try:
        async with asyncio.timeout(job.seconds + PATIENCE):
            await volley.connect()
            await volley.fly(0, job.concurrency)  # opens the way on both sides of the proxy
            cpu, began = cpu_seconds(job.pids), perf_counter()
            await volley.fly(job.seconds, job.most)
            cpu, took = cpu_seconds(job.pids) - cpu, perf_counter() - began
    finally:
        volley.close()
    return Sample(
        requests=len(volley.latencies),
        seconds=took,
        cpu_seconds=cpu,
        latency=median(volley.latencies),
        first_byte=median(volley.first_bytes),
    )


def result_of(line: str) -> dict[str, object]:
    """One job, given and answered as a line of JSON."""
    try:
        return {"sample": asdict(uvloop.run(perform(Job(**json.loads(line)))))}
    except TimeoutError:
        return {"error": f"not finished {PATIENCE:g} s after its time"}
    except (WrongAnswer, ValueError, OSError) as failure:
        return {"error": f"{type(failure).__name__}: {failure}"}


if __name__ == "__main__":
    for job_line in sys.stdin:
        print(json.dumps(result_of(job_line)), flush=True)
