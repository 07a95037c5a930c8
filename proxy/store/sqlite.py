"""A store in one SQLite file, shared by all workers of a machine."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from math import inf
from pathlib import Path

import aiosqlite
import structlog

from proxy.ports import Space
from proxy.store.entries import Entry
from proxy.store.outage import Outage, outage_from
from proxy.store.sqlite_file import Database, FileOptions, connect, connect_for_reading, set_aside

log = structlog.get_logger("tailfold")

_PUT = """
INSERT INTO facts (tenant, space, key, value, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, expires = excluded.expires WHERE expires IS NOT NULL
"""
# NULL is for good: SQLite's max() of it and any other time is NULL again.
_PUT_NEW = """
INSERT INTO facts (tenant, space, key, value, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
  value = CASE WHEN expires <= ? THEN excluded.value ELSE value END, expires = max(expires, excluded.expires)
RETURNING value
"""
_DELETE = "DELETE FROM facts WHERE tenant = ? AND space = ? AND key = ?"
_CLAIM = """
INSERT INTO facts (tenant, space, key, value, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, expires = excluded.expires
  WHERE expires <= ? OR value = excluded.value
RETURNING 1
"""
_RELEASE = f"{_DELETE} AND value = ?"
_LIST = """
SELECT rowid, tenant, space, key, value, expires FROM facts
WHERE rowid > ? AND (expires IS NULL OR expires > ?) AND space != 'claims' ORDER BY rowid LIMIT ?
"""
_CLEAR = """
DELETE FROM facts WHERE rowid IN (
  SELECT rowid FROM facts WHERE space = ? AND (expires <= ? OR (expires IS NULL AND ?)) LIMIT ?
) RETURNING 1
"""
# Freeing a large value takes about as long as writing it, so that rows alone are no measure.
_PURGE = """
DELETE FROM facts WHERE (tenant, space, key) IN (
  SELECT tenant, space, key FROM (
    SELECT tenant, space, key, size, sum(size) OVER (ORDER BY expires ROWS UNBOUNDED PRECEDING) AS total
    FROM (
      SELECT tenant, space, key, expires, length(value) AS size FROM facts
      WHERE expires <= ? ORDER BY expires LIMIT ?
    )
  ) WHERE total - size < ?
) RETURNING 1
"""

_MOST_KEYS = 512  # in one query; older builds of SQLite take 999 variables
_PURGE_EVERY = 300.0
_PURGE_ROWS = 500
_PURGE_BYTES = 2 * 1024**2
_LISTED = 64  # rows in memory at one time
_CLEARED = 200  # in one transaction: others may write in between
_KINDS = frozenset(Space)
_AS_USUAL = FileOptions()


class SqliteStore:
    """Reads have a connection of their own: WAL lets them pass a write, which may be waiting for a lock."""

    def __init__(
        self,
        database: Database,
        writer: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        clock: Callable[[], float],
    ) -> None:
        self._path = database.path
        self._file_id = database.file_id
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._purge_due = clock() + _PURGE_EVERY
        self._closed = False
        self.replaced = database.replaced  # where a corrupt file went that was found at the path

    @classmethod
    async def open(
        cls, path: Path, options: FileOptions = _AS_USUAL, clock: Callable[[], float] = time.time
    ) -> SqliteStore:
        databases: list[Database] = []

        def connector() -> sqlite3.Connection:
            databases.append(connect(path, options))
            return databases[0]

        writer = await _connected(connector)
        try:
            reader = await _connected(partial(connect_for_reading, databases[0].path, options))
        except BaseException:
            await writer.close()
            raise
        store = cls(databases[0], writer, reader, clock)
        if store.replaced is not None:
            log.warning("the store's file is corrupt, a new one is begun", kept_as=store.replaced.name)
        return store

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        now = self._clock()
        async with self._trouble_told():
            for start in range(0, len(keys), _MOST_KEYS):
                chunk = _filled_up(keys[start : start + _MOST_KEYS])
                rows = await self._reader.execute_fetchall(_select(len(chunk)), (tenant, space, now, *chunk))
                found.update((key, value) for key, value in rows)
        return found

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        if not values:
            return
        now = self._clock()
        rows = [(tenant, space, key, value, now + ttl) for key, value in values.items()]
        async with self._trouble_told():
            # Before the values, so that its failure does not look like theirs.
            await self._purge(now)
            await self._writer.executemany(_PUT, rows)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        now = self._clock()
        expires = None if ttl is None else now + ttl
        async with self._trouble_told():
            rows = await self._written(_PUT_NEW, (tenant, space, key, value, expires, now))
        return bytes(rows[0][0])

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        if not keys:
            return
        async with self._trouble_told():
            await self._writer.executemany(_DELETE, [(tenant, space, key) for key in keys])

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        now = self._clock()
        async with self._trouble_told():
            return bool(await self._written(_CLAIM, (tenant, Space.CLAIMS, key, holder, now + ttl, now)))

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        async with self._trouble_told():
            await self._written(_RELEASE, (tenant, Space.CLAIMS, key, holder))

    async def entries(self) -> AsyncIterator[Entry]:
        last = 0
        async with self._trouble_told():
            while rows := [*await self._reader.execute_fetchall(_LIST, (last, self._clock(), _LISTED))]:
                for row, tenant, space, key, value, until in rows:
                    last = row
                    if space in _KINDS:  # not of a newer Tailfold, which had other kinds of things to keep
                        yield Entry(tenant, Space(space), key, value, until)

    async def clear(self, spaces: Collection[Space], *, only_expired: bool) -> int:
        """What was removed is not left behind in the file's free pages."""
        before = self._clock() if only_expired else inf
        gone = 0
        async with self._trouble_told():
            for space in spaces:
                while rows := await self._written(_CLEAR, (space, before, not only_expired, _CLEARED)):
                    gone += len(rows)
            await self._written("VACUUM", ())
            await self._written("PRAGMA wal_checkpoint(TRUNCATE)", ())
        return gone

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._reader.close()
            await self._writer.close()
        except (sqlite3.Error, OSError) as error:
            raise outage_from(error) from error

    async def _written(self, statement: str, values: Sequence[object]) -> list[sqlite3.Row]:
        """In one statement, and so in one transaction: it is committed when the last row has been fetched."""
        return list(await self._writer.execute_fetchall(statement, values))

    async def _purge(self, now: float) -> None:
        """A little at a time; while there is more, every put takes a little more away than it adds."""
        if now < self._purge_due:
            return
        gone = await self._written(_PURGE, (now, _PURGE_ROWS, _PURGE_BYTES))
        self._purge_due = now if gone else now + _PURGE_EVERY

    @asynccontextmanager
    async def _trouble_told(self) -> AsyncIterator[None]:
        if self._closed:
            raise Outage("unavailable", "the store is closed")
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            outage = outage_from(error)
            raise (await self._without_the_file() if outage.reason == "corrupt" else outage) from error

    async def _without_the_file(self) -> Outage:
        """Renamed before it is closed: what lies in the -wal stays there, for whoever looks into it."""
        kept_as = await asyncio.to_thread(set_aside, self._path, self._file_id)
        await self.close()
        where = f"it was kept as {kept_as.name}" if kept_as else "another process has set it aside"
        return Outage("corrupt", f"the file is corrupt; {where}")


async def _connected(connector: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    threads: list[threading.Thread] = []

    def connect_here() -> sqlite3.Connection:
        threads.append(threading.current_thread())
        return connector()

    connection = _with_a_daemon_thread(connect_here)
    try:
        return await connection
    except Outage:
        # It has only to end, and would stumble over an event loop that is closed before it does.
        threads[0].join(timeout=1)
        raise


def _with_a_daemon_thread(connector: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    """aiosqlite's thread takes after the one that makes it. A daemon does not keep the process alive, even
    when a frozen disk never lets it go on.
    """
    made: list[aiosqlite.Connection] = []
    maker = threading.Thread(
        target=lambda: made.append(aiosqlite.Connection(connector, iter_chunk_size=64)), daemon=True
    )
    maker.start()
    maker.join()
    return made[0]


@cache
def _select(count: int) -> str:
    marks = ",".join("?" * count)
    return (
        "SELECT key, value FROM facts WHERE tenant = ? AND space = ? AND (expires IS NULL OR expires > ?) "
        f"AND key IN ({marks})"
    )


def _filled_up(keys: Sequence[bytes]) -> Sequence[bytes]:
    """To the next power of two, with a key that is there: ten statements to compile, not five hundred."""
    size = 1 << (len(keys) - 1).bit_length()
    return [*keys, *[keys[0]] * (size - len(keys))]
