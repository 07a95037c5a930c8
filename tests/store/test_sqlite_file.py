from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from proxy.store.outage import Outage
from proxy.store.sqlite_file import MIGRATIONS, FileOptions, connect, version_of

NEXT = (*MIGRATIONS, ("ALTER TABLE facts ADD COLUMN origin TEXT DEFAULT 'old'",))
ROW = (b"tenant", "counts", b"key", b"value", 1.0)


def made(path: Path, migrations: Sequence[Sequence[str]]) -> None:
    with closing(connect(path, FileOptions(migrations=migrations))) as database:
        database.executemany(
            "INSERT INTO facts (tenant, space, key, value, expires) VALUES (?, ?, ?, ?, ?)", [ROW]
        )


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        number: int = database.execute("PRAGMA user_version").fetchone()[0]
        return number


def shape(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    return sorted(database.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def test_a_new_file_has_the_newest_schema(tmp_path: Path) -> None:
    made(tmp_path / "state.db", MIGRATIONS)
    assert version(tmp_path / "state.db") == len(MIGRATIONS)


def test_an_older_file_is_brought_up_to_date_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    made(path, MIGRATIONS)
    with closing(connect(path, FileOptions(migrations=NEXT))) as database:
        assert database.execute("SELECT * FROM facts").fetchall() == [(*ROW, "old")]
    assert version(path) == len(NEXT)


@pytest.mark.parametrize("old", range(1, len(MIGRATIONS)))
def test_every_older_version_becomes_today_s(tmp_path: Path, old: int) -> None:
    path, settled = tmp_path / "state.db", (b"", "server", b"secret", b"kept for good", None)
    made(path, MIGRATIONS[:old])
    with closing(connect(path, FileOptions(migrations=MIGRATIONS[:old]))) as database:
        database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", [settled])
    with (
        closing(connect(path, FileOptions())) as database,
        closing(connect(tmp_path / "new.db", FileOptions())) as new,
    ):
        assert sorted(database.execute("SELECT * FROM facts")) == [settled, ROW]
        assert shape(database) == shape(new)
        with pytest.raises(sqlite3.IntegrityError):
            database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", [ROW])
    assert version(path) == len(MIGRATIONS)


def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    made(path, NEXT)
    before = path.read_bytes()
    with pytest.raises(Outage) as caught:
        connect(path, FileOptions())
    assert caught.value.reason == "newer"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]


def test_a_migration_that_fails_leaves_the_file_at_its_version(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    made(path, MIGRATIONS)
    broken = (*NEXT, ("ALTER TABLE nowhere ADD COLUMN x",))
    with pytest.raises(Outage):
        connect(path, FileOptions(migrations=broken))
    assert version(path) == len(MIGRATIONS)
    with closing(connect(path, FileOptions(migrations=NEXT))) as database:
        assert database.execute("SELECT count(*) FROM facts").fetchone() == (1,)


def test_the_file_is_in_wal_mode(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "state.db", FileOptions())) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (1,)


def test_what_is_left_of_a_write_does_not_hold_the_statement_of_the_next(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "state.db", FileOptions())) as database:
        done = database.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", [ROW])
        with pytest.raises(sqlite3.ProgrammingError, match="closed cursor"):
            done.fetchall()
        assert database.execute("SELECT * FROM facts").fetchall() == [ROW]


def test_the_version_of_a_file_is_told_without_changing_it(tmp_path: Path) -> None:
    path = tmp_path / "state?.db"
    assert version_of(path) is None
    connect(path, FileOptions(migrations=MIGRATIONS[:1])).close()
    before = path.read_bytes()
    assert version_of(path) == 1
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["state?.db"]


def test_the_version_of_a_corrupt_file_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(Outage) as caught:
        version_of(tmp_path / "state.db")
    assert caught.value.reason == "corrupt"
    assert (tmp_path / "state.db").exists()
