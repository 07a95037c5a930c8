"""The load: raw HTTP/1.1 over keep-alive connections, in a process of its own.

python -m bench.load reads one job per line from standard input and writes one result per line, both JSON.
Every answer is compared with what the upstream sends; the first that differs ends the job with an error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import cast

import uvloop

from bench.conversation import Request, chat_requests, growing_requests
from bench.procfs import cpu_seconds

# How long a job may take beyond its own time; loopback answers are far from it.
PATIENCE = 20.0
# Between an answer and the conversation's next turn, as an agent runs a tool: meanwhile what was learned from
# the answer is written down.
REST = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    ports: list[int]  # of servers that take turns; all but a growing conversation talk to the first one
    kilobytes: int
    stream: bool
    pause_ms: int
    concurrency: int
    seconds: float
    most: int  # requests, whatever the time
    pids: list[int]  # whose CPU time is read just before the first and just after the last request
    growing: str | None = (
        None  # the name of a conversation that grows turn by turn, one that nobody knows yet
    )
    turns: int = 0  # that it has


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
        self._requests = chat_requests(job.ports[0], job.kilobytes, stream=job.stream, pause_ms=job.pause_ms)
        self.latencies: list[float] = []
        self.first_bytes: list[float] = []
        self._connections: list[Connection] = []
        self._job = job
        self._until = 0.0
        self._left = 0
        self._busy = 0
        self._landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        for number in range(self._job.concurrency):
            requests = islice(cycle(self._requests), number, None)
            self._connections.append(await connected(self, self._job.ports[0], requests))

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


class Talk:
    """One conversation, turn by turn, each of them to the next server."""

    def __init__(self, job: Job) -> None:
        self.latencies: list[float] = []
        self._job = job
        self._connections: list[Connection] = []
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        name, count = self._job.growing or "", len(self._job.ports)
        for place, port in enumerate(self._job.ports):
            requests = growing_requests(port, self._job.kilobytes, self._job.turns, name)
            self._connections.append(await connected(self, port, iter(requests[place::count])))

    async def go_on(self, turns: int) -> None:
        for _ in range(turns):
            self._answered = asyncio.get_running_loop().create_future()
            connection = self._connections.pop(0)
            self._connections.append(connection)
            connection.send()
            await self._answered
            await asyncio.sleep(REST)

    def answered(self, _connection: Connection, latency: float, _first_byte: float) -> None:
        self.latencies.append(latency)
        self._answered.set_result(None)

    def failed(self, failure: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(failure)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, load: Volley | Talk, requests: Iterator[Request]) -> None:
        self._load = load
        self._requests = requests
        self._acceptable: frozenset[bytes] = frozenset()
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
            self._load.failed(WrongAnswer(f"connection lost after {len(self._received)} bytes: {failure}"))

    def close(self) -> None:
        self._waiting = False
        self._transport.abort()

    def send(self) -> None:
        request = next(self._requests)
        self._acceptable = request.answers
        self._received = b""
        self._body_start = 0
        self._first_byte_at = 0.0
        self._waiting = True
        self._sent_at = perf_counter()
        self._transport.write(request.wire)

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
            self._load.failed(failure)

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
        if body not in self._acceptable:
            raise WrongAnswer(f"another body than the upstream's, {len(body)} bytes: {body[:300]!r}")
        self._waiting = False
        self._load.answered(self, now - self._sent_at, self._first_byte_at - self._sent_at)

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


async def connected(load: Volley | Talk, port: int, requests: Iterator[Request]) -> Connection:
    new = partial(Connection, load, requests)
    _, connection = await asyncio.get_running_loop().create_connection(new, "127.0.0.1", port)
    return connection


async def perform(job: Job) -> Sample:
    return await (_grown(job) if job.growing else _flown(job))


async def _grown(job: Job) -> Sample:
    """Without its opening: each server's first turn opens the way there, and is about nothing known."""
    talk, opening = Talk(job), len(job.ports)
    try:
        async with asyncio.timeout(job.turns * REST + PATIENCE):
            await talk.connect()
            await talk.go_on(opening)
            cpu, began = cpu_seconds(job.pids), perf_counter()
            await talk.go_on(job.turns - opening)
            cpu, took = cpu_seconds(job.pids) - cpu, perf_counter() - began
    finally:
        talk.close()
    return Sample(
        requests=job.turns - opening,
        seconds=took,
        cpu_seconds=cpu,
        latency=median(talk.latencies[opening:]),
        first_byte=0.0,  # nobody asks
    )


async def _flown(job: Job) -> Sample:
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
