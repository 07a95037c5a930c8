"""The doctor and the SQLite file. Tests may run as root, to whom permissions mean nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.cli.doctor.finding import Finding, Verdict
from proxy.cli.doctor.sqlite_store import file_finding, space_finding
from proxy.cli.doctor.store import check
from proxy.ports import Space
from proxy.settings import Settings
from proxy.store.sqlite import SqliteStore
from proxy.store.sqlite_file import MIGRATIONS, TODAYS_VERSION, FileOptions, version_of
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER

PASS, WARN, FAIL = Verdict


async def findings(path: Path) -> dict[str, Finding]:
    tasks = Tasks()
    found = await check(Settings(store=f"sqlite:///{path}"), tasks)
    await tasks.close(timeout=0)
    return {finding.name: finding for finding in found}


async def made(path: Path, options: FileOptions | None = None) -> None:
    store = await SqliteStore.open(path, options or FileOptions())
    if options is None:
        await store.put(b"tenant", Space.COUNTS, {b"k": b"v"}, ttl=FOREVER)
    await store.close()


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        number: int = database.execute("SELECT count(*) FROM facts").fetchone()[0]
        return number


async def test_a_file_that_is_there_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await made(path)
    found = await findings(path)
    assert {name: finding.verdict for name, finding in found.items() if name != "store space"} == {
        "store": PASS,
        "store file": PASS,
    }
    assert "for its owner alone" in found["store file"].found
    assert os.listdir(tmp_path) == ["state.db"]
    assert rows(path) == 1


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    found = await findings(tmp_path / "not" / "yet" / "state.db")
    assert found["store"].verdict is PASS
    assert "made at the first start" in found["store file"].found
    assert os.listdir(tmp_path) == []


async def test_a_file_of_an_older_tailfold_is_not_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await made(path, FileOptions(migrations=MIGRATIONS[:1]))
    found = await findings(path)
    assert found["store"].verdict is PASS
    assert "an older Tailfold made it" in found["store file"].found
    assert version_of(path) == 1 < TODAYS_VERSION
    assert os.listdir(tmp_path) == ["state.db"]


async def test_a_file_of_a_newer_tailfold_fails(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await made(path, FileOptions(migrations=[*MIGRATIONS, ["CREATE TABLE newer (x)"]]))
    found = await findings(path)
    assert found["store"].verdict is FAIL
    assert "newer" in found["store"].found


async def test_a_corrupt_file_fails_and_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database" * 1000)
    found = await findings(path)
    assert found["store"].verdict is FAIL
    assert path.read_bytes() == b"not a database" * 1000
    assert os.listdir(tmp_path) == ["state.db"]


async def test_a_file_that_somebody_else_holds_fails(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await made(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = await findings(path)
    assert found["store"].verdict is FAIL
    assert "locked" in found["store"].found


@pytest.mark.parametrize("folder", ["/proc/1", "/proc/self"])
async def test_a_folder_that_nobody_can_write_to_fails(folder: str) -> None:
    found = await findings(Path(folder) / "state.db")
    assert found["store"].verdict is FAIL
    assert f"{folder} cannot be written to" in found["store"].found


async def test_a_folder_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = await findings(tmp_path / "file" / "state.db")
    assert found["store"].verdict is FAIL
    assert "is not a folder" in found["store"].found


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
async def test_a_file_that_others_could_read_until_it_was_opened_is_a_warning(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "state.db"
    await made(path)
    path.chmod(mode)
    found = await findings(path)
    assert found["store file"].verdict is WARN
    assert "until now" in found["store file"].found
    assert (await findings(path))["store file"].verdict is PASS


def test_one_that_others_can_still_read_is_a_warning_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch(0o644)
    found = file_finding(path, 1, was_exposed=True)
    assert found.verdict is WARN
    assert "chmod 600" in str(found.hint)


def test_little_space_is_a_warning(tmp_path: Path) -> None:
    assert space_finding(tmp_path, 10**7).verdict is WARN
    assert space_finding(tmp_path, 10**10).verdict is PASS


async def test_memory_is_a_warning() -> None:
    (finding,) = await check(Settings(store="memory://"), Tasks())
    assert finding.verdict is WARN
