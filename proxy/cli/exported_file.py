"""Where an export goes: into a file that is there when it is whole, or to where bytes flow on from."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import IO

import click

STDIO = "-"


@contextmanager
def written_to(file: str, *, replacing: bool) -> Iterator[IO[bytes]]:
    """Only a regular file is ever replaced; what flows on (a pipe, a terminal) is written to as it is."""
    try:
        with _opened(file, replacing=replacing) as out:
            yield out
            out.flush()
    except OSError as problem:
        if problem.errno == errno.EPIPE:
            raise  # the reader has left, of which no more is to be said
        raise click.ClickException(f"cannot write {file}: {problem.strerror}") from None


@contextmanager
def _opened(file: str, *, replacing: bool) -> Iterator[IO[bytes]]:
    path = Path(file)
    if file == STDIO or _is_our_output(path):
        yield sys.stdout.buffer
    elif not path.exists():
        if path.is_symlink():
            raise click.ClickException(f"{file} is a link that leads nowhere: name the file itself")
        with _made_whole(path) as out:
            yield out
    elif path.is_file():
        if not replacing:
            raise click.ClickException(f"{file} is there already; --force replaces it")
        with _made_whole(path.resolve()) as out:  # what a link leads to, and not the link
            yield out
    elif path.is_fifo() or path.is_char_device():
        with os.fdopen(os.open(path, os.O_WRONLY), "wb") as out:
            yield out
    else:
        raise click.ClickException(f"{file} is no file, pipe or terminal: nothing is exported there")


def _is_our_output(path: Path) -> bool:
    """/dev/stdout, whatever that is just now: a file that the shell has opened must not be replaced."""
    try:
        there, ours = path.stat(), os.fstat(sys.stdout.fileno())
    except OSError:
        return False
    return os.path.samestat(there, ours) and not stat.S_ISBLK(there.st_mode)


@contextmanager
def _made_whole(path: Path) -> Iterator[IO[bytes]]:
    """For its owner alone from the first byte on."""
    handle, name = mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
