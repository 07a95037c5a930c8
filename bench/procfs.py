"""What the kernel says about processes: Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def available() -> bool:
    return Path("/proc/self/stat").exists()


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    parents = {
        int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    }
    members = [pid]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time together."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def resident_bytes(pids: Iterable[int]) -> int:
    """Added up, so pages that processes share count more than once."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _parent(pid: int) -> int | None:
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None  # ended while we looked


def _stat(pid: int) -> list[str]:
    # The second field is the command in brackets and may hold spaces: count from what follows it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
