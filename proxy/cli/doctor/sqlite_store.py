"""The SQLite file: its place, who may read it, and how much room there is.

A file that is not there is not made, and one of an older Tailfold, which may be using it now, is not brought
to today's schema: the round trip is then made in a folder beside it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from proxy.cli.doctor import round_trip
from proxy.cli.doctor.finding import Finding, fails, passes, warns
from proxy.cli.doctor.sizes import written
from proxy.settings import Settings
from proxy.store import sqlite_path
from proxy.store.outage import Outage
from proxy.store.sqlite_file import TODAYS_VERSION, version_of
from proxy.tasks import Tasks

_FILE, _SPACE = "store file", "store space"
_LITTLE_SPACE = 512 * 1024**2


async def check(settings: Settings, tasks: Tasks) -> list[Finding]:
    path = sqlite_path(settings.store_url).absolute()
    folder = _nearest(path.parent)
    if not folder.is_dir():
        return [fails(round_trip.NAME, f"{folder} is not a folder", "give another path: --store")]
    try:
        version = await asyncio.to_thread(version_of, path)
        was_exposed = version is not None and _is_exposed(path)
        trip = await _round_trip(settings, tasks, path, version, folder)
    except Outage as outage:
        return [round_trip.unavailable(outage)]
    told = file_finding(path, version, was_exposed=was_exposed)
    return [trip, told, space_finding(folder, shutil.disk_usage(folder).free)]


async def is_as_today(path: Path) -> bool:
    """Is there a file, and could it be opened without bringing it up to date?"""
    return await asyncio.to_thread(version_of, path) == TODAYS_VERSION


async def _round_trip(
    settings: Settings, tasks: Tasks, path: Path, version: int | None, folder: Path
) -> Finding:
    if version is not None and version >= TODAYS_VERSION:
        return await round_trip.check(settings, tasks)  # which refuses one that is newer
    try:
        with TemporaryDirectory(prefix=".tailfold-doctor-", dir=folder) as beside:
            url = f"sqlite:///{quote(os.fsencode(Path(beside) / 'trial.db'))}"
            return await round_trip.check(settings, tasks, url=url, note=f"{path}, tried in {folder}")
    except OSError as problem:
        hint = "let this user write there, or give another path: --store"
        return fails(round_trip.NAME, f"{folder} cannot be written to: {problem.strerror}", hint)


def _is_exposed(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def file_finding(path: Path, version: int | None, *, was_exposed: bool = False) -> Finding:
    """To open a file takes the rights of others away, where it is ours: here by the round trip."""
    if version is None:
        return passes(_FILE, f"{path} is not there yet: it is made at the first start")
    if _is_exposed(path):
        found = f"{path} can be read by other users of this machine"
        return warns(_FILE, found, f"chmod 600 {path}*")
    if was_exposed:
        found = f"{path} could be read by other users of this machine until now"
        return warns(_FILE, found, "it is for its owner alone from now on: who may have read it?")
    found = f"{path} has {written(path.stat().st_size)} and is for its owner alone"
    if version < TODAYS_VERSION:
        found += "; an older Tailfold made it, and the next start brings it up to date"
    return passes(_FILE, found)


def space_finding(folder: Path, free: int) -> Finding:
    found = f"{written(free)} free in {folder}"
    if free < _LITTLE_SPACE:
        return warns(_SPACE, found, "make room: when the disk is full, nothing more is kept")
    return passes(_SPACE, found)


def _nearest(folder: Path) -> Path:
    """The folder, or what is there on the way to it."""
    return next(each for each in (folder, *folder.parents) if each.exists())
