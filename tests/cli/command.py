"""The real command in a process of its own, in an environment that holds only what a test says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# -P as for an installed command: the folder we are in is not searched for packages.
TAILFOLD = (sys.executable, "-P", "-m", "proxy")
# Far beyond what anything here takes: it ends a test that would otherwise hang.
PATIENCE = 60.0


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), **(extra or {})}


def tailfold(
    *arguments: str, home: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TAILFOLD, *arguments],
        env=environment(home, env),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Running:
    """A process that is still going on, its output read line by line."""

    def __init__(self, process: subprocess.Popen[str], errors: list[str]) -> None:
        self.process = process
        self.errors = errors  # lines on standard error, complete once the process has been left

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)


class Serving(Running):
    def __init__(self, process: subprocess.Popen[str], errors: list[str]) -> None:
        super().__init__(process, errors)
        self.banner = [self.line() for _ in range(6)]

    @property
    def url(self) -> str:
        return self.banner[0].removeprefix("listening at  ")

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    def health(self) -> dict[str, Any]:
        return get_json(f"{self.url}/healthz")


@contextmanager
def started(*command: str, home: Path, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    with _process(command, home, env) as started_one:
        yield Running(*started_one)


@contextmanager
def serving(*flags: str, home: Path, env: Mapping[str, str] | None = None) -> Iterator[Serving]:
    with _process((*TAILFOLD, "serve", "--port", "0", *flags), home, env) as started_one:
        yield Serving(*started_one)


@contextmanager
def _process(
    command: tuple[str, ...], home: Path, env: Mapping[str, str] | None
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    process = subprocess.Popen(
        command,
        env=environment(home, env),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal, as under a service manager
    )
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    errors: list[str] = []
    drain = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    drain.start()  # a full pipe would stop the process
    try:
        yield process, errors
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        drain.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        sys.stderr.writelines(errors)  # pytest shows it when the test fails


def get_json(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PATIENCE) as answer:
        content: dict[str, Any] = json.load(answer)
        return content


def eventually(condition: Callable[[], bool]) -> None:
    """Come back as soon as it is true; it has to become true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    """A process that has ended but was not waited for (a zombie) is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
