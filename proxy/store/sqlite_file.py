"""The SQLite file itself: made private, brought to today's schema, and set aside when it is corrupt.

Everything here blocks, and belongs on a thread that may wait.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from proxy.store.outage import Outage, outage_from
from proxy.store.slots import Slot

log = structlog.get_logger("tailfold")

# One entry per version of the schema, each a few statements. Entries are only ever added.
MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """
        CREATE TABLE facts (
          tenant BLOB NOT NULL,
          space TEXT NOT NULL,
          key BLOB NOT NULL,
          value BLOB NOT NULL,
          expires REAL,
          PRIMARY KEY (tenant, space, key)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX facts_by_expiry ON facts (expires) WHERE expires IS NOT NULL",
    ),
    # In a table without row ids, a search reads every row that it is compared with to its end: well for
    # counts, not for messages of a megabyte.
    (
        """
        CREATE TABLE kept (
          tenant BLOB NOT NULL,
          space TEXT NOT NULL,
          key BLOB NOT NULL,
          value BLOB NOT NULL,
          expires REAL,
          UNIQUE (tenant, space, key)
        )
        """,
        "INSERT INTO kept SELECT tenant, space, key, value, expires FROM facts",
        "DROP TABLE facts",
        "ALTER TABLE kept RENAME TO facts",
        "CREATE INDEX facts_by_expiry ON facts (expires) WHERE expires IS NOT NULL",
    ),
)

TODAYS_VERSION = len(MIGRATIONS)

_SIDECARS = ("-wal", "-shm")
_PAGE = 4096
_OTHERS = 0o077  # the rights of group and others
_VALUE = "SELECT value FROM facts WHERE tenant = ? AND space = ? AND key = ?"

FileId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileOptions:
    busy_timeout: float = 0.2  # seconds; less than a request may wait, so that "locked" can still be told
    most_bytes: int | None = None  # a file that would grow beyond this counts as full
    migrations: Sequence[Sequence[str]] = MIGRATIONS


class Database(sqlite3.Connection):
    """A connection in autocommit mode: every call is a whole transaction, so that a caller who is cancelled
    between two calls leaves nothing half done.
    """

    path: Path
    file_id: FileId | None
    replaced: Path | None = None  # where the corrupt file went that was found in this one's place

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        """Not into a file that nobody will find again: what was written there would be lost."""
        if _file_id(self.path) != self.file_id:
            raise Outage("unavailable", "the file was moved or deleted while in use")
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """All rows or none."""
        with self:
            self.execute("BEGIN IMMEDIATE")
            done = super().executemany(sql, rows)
        # A cursor resets its statement when it is freed, which the event loop would do while the next write,
        # on the thread of this one, is using the very same statement.
        done.close()
        return done


def connect(path: Path, options: FileOptions) -> Database:
    """Open the file, which is begun if it is not there, and begun anew if it is corrupt."""
    with _told_as_outage():
        path = path.resolve()  # the working directory may change, and -wal lies beside the real file
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone_in(path.parent):
            try:
                return _opened(path, options)
            except Outage as outage:
                if outage.reason != "corrupt":
                    raise
            replaced = _renamed(path)
            database = _opened(path, options)
            database.replaced = replaced
            return database


def connect_for_reading(path: Path, options: FileOptions) -> sqlite3.Connection:
    """A second connection to a file that is open already."""
    with _told_as_outage():
        reader = sqlite3.connect(path, timeout=options.busy_timeout, isolation_level=None)
        reader.execute("PRAGMA query_only = 1")
        return reader


def version_of(path: Path) -> int | None:
    """The version of the file's schema, None where there is no file. Nothing is made, mended or migrated."""
    with _told_as_outage():
        if not path.exists():
            return None
        with closing(_looking_into(path)) as reader:
            version: int = reader.execute("PRAGMA user_version").fetchone()[0]
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return version


def values_in(path: Path, slots: Sequence[Slot]) -> list[bytes]:
    """What a file has there, if it is one that we understand. Nothing is made, mended or migrated."""
    if (version_of(path) or 0) not in range(1, TODAYS_VERSION + 1):
        return []
    with _told_as_outage(), closing(_looking_into(path)) as reader:
        rows = [row for slot in slots for row in reader.execute(_VALUE, slot)]
    return [bytes(value) for (value,) in rows]


def _looking_into(path: Path) -> sqlite3.Connection:
    reader = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0.2)
    reader.execute("PRAGMA query_only = 1")
    return reader


def set_aside(path: Path, file_id: FileId | None) -> Path | None:
    """Rename the corrupt file, for somebody to look at. None if another process was faster: what is there
    now is the fresh one.
    """
    with _told_as_outage(), _alone_in(path.parent):
        return _renamed(path) if file_id is not None and _file_id(path) == file_id else None


@contextmanager
def _told_as_outage() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise outage_from(error) from error
    except ValueError as error:  # a path with a zero byte in it
        raise Outage("unavailable", "the path is not a valid one") from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process at a time opens, migrates or sets aside; the lock goes with the process that holds it."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # exists only where there is flock

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _opened(path: Path, options: FileOptions) -> Database:
    with _told_as_outage():
        _make_private(path)
        if not (_writable(path) and _writable(path.parent)):
            raise Outage("readonly", "the file or its folder cannot be written to")
        database = sqlite3.connect(path, timeout=options.busy_timeout, isolation_level=None, factory=Database)
        try:
            database.path, database.file_id = path, _file_id(path)
            _set_up(database, options)
        except BaseException:
            database.close()
            raise
        _keep_to_ourselves(path)
        return database


def _make_private(path: Path) -> None:
    """The file is made here because SQLite would follow the umask; -wal and -shm then take after it."""
    try:
        # Never opened if it exists: closing it again would drop the locks of our other connections to it.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    try:
        path.chmod(0o600)
    finally:
        os.close(handle)


def _keep_to_ourselves(path: Path) -> None:
    """A file that was copied or restored may have come with other rights than ours are made with."""
    if sys.platform == "win32":
        return
    exposed = [each for each in _parts_of(path) if each.exists() and each.stat().st_mode & _OTHERS]
    if not exposed:
        return
    try:
        for each in exposed:
            _take_from_others(each)
    except OSError:
        log.warning("other users of this machine can read the store's file: chmod 600", file=path.name)
    else:
        log.warning(
            "other users of this machine could read the store's file; it is its owner's alone now",
            file=path.name,
        )


def _take_from_others(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError  # root could, but whose it is may mean to share it
    path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def _parts_of(path: Path) -> list[Path]:
    """The file last: a -wal that stayed behind would be read into one that takes its place."""
    return [Path(f"{path}{suffix}") for suffix in (*_SIDECARS, "")]


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _set_up(database: Database, options: FileOptions) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > len(options.migrations):
        # Nothing has been written so far: a file that we do not understand is left as it is.
        raise Outage("newer", f"the file has schema version {version}, made by a newer Tailfold")
    database.execute("PRAGMA journal_mode = WAL")
    # A commit is in the -wal, in the hands of the operating system, before its caller hears of it: the death
    # of this process cannot lose it. There is no fsync for each, so that a power failure may lose the commits
    # since the last checkpoint (the latest ones; never a part of one). What was lost is made again: at worst
    # a summary in other words, which costs a place in the provider's cache and nothing else.
    database.execute("PRAGMA synchronous = NORMAL")
    if options.most_bytes is not None:
        database.execute(f"PRAGMA max_page_count = {max(1, options.most_bytes // _PAGE)}")
    if version < len(options.migrations):
        _migrate(database, version, options.migrations)


def _migrate(database: Database, version: int, migrations: Sequence[Sequence[str]]) -> None:
    with database:
        database.execute("BEGIN IMMEDIATE")
        for statements in migrations[version:]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(migrations)}")


def _renamed(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    target = path.with_name(f"{path.name}.corrupt-{stamp}")
    for part, aside in zip(_parts_of(path), _parts_of(target), strict=True):
        try:
            part.rename(aside)
        except FileNotFoundError:
            pass  # a file that was closed in order has no sidecars
    return target


def _file_id(path: Path) -> FileId | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
