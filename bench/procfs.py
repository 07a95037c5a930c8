"""What the kernel says about processes: Linux only."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable
from pathlib import Path

_libc = ctypes.CDLL(None)


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
    """User and system time of all their threads.

    From their CPU clocks: the sum of utime and stime in /proc/PID/stat, but not cut to ticks of 10 ms.
    """
    return sum(time.clock_gettime(_cpu_clock(pid)) for pid in pids)


def foreign_seconds() -> float:
    """CPU time that was neither ours nor our ended children's: what else the machine has done."""
    return _busy_seconds() - sum(os.times()[:4])


def _busy_seconds() -> float:
    """Of the whole machine, time lost to its host included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Iterable[int]) -> int:
    """Added up, so pages that processes share count more than once."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_clock(pid: int) -> int:
    clock = ctypes.c_int()
    error = _libc.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error:
        raise ProcessLookupError(error, os.strerror(error))
    return clock.value


def _parent(pid: int) -> int | None:
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None  # ended while we looked


def _stat(pid: int) -> list[str]:
    # The second field is the command in brackets and may hold spaces: count from what follows it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
