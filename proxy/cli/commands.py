"""Running somebody else's command as if we were not there: its streams, its signals, its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import click

CANNOT_RUN = 126
COMMAND_NOT_FOUND = 127
KILLED_BY_SIGNAL = 128

# A terminal sends these to every process in its foreground, the command included.
_FROM_TERMINALS = frozenset({signal.SIGINT, signal.SIGQUIT})
_FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def run_command(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit code as a shell would tell it."""
    with _forwarding() as signals:
        try:
            process = subprocess.Popen(command, env=dict(environ))
        except FileNotFoundError:
            click.echo(f"tailfold: command not found: {command[0]}", err=True)
            return COMMAND_NOT_FOUND
        except OSError as error:
            click.echo(f"tailfold: cannot run {command[0]}: {error.strerror}", err=True)
            return CANNOT_RUN
        signals.send_to(process)
        code = process.wait()
    return code if code >= 0 else KILLED_BY_SIGNAL - code


class _Signals:
    """Hands signals on to the command; one that comes before it runs is kept for it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: list[int] = []

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if number in _FROM_TERMINALS and _in_foreground():
            return  # the terminal has told the command already; twice would be another request
        if self._process is None:
            self._kept.append(number)
        else:
            self._process.send_signal(number)

    def send_to(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        for number in self._kept:
            process.send_signal(number)


@contextmanager
def _forwarding() -> Iterator[_Signals]:
    signals = _Signals()
    # What is ignored (nohup) stays ignored, here and in the command.
    numbers = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signals) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
