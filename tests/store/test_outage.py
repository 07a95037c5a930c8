from __future__ import annotations

import errno
import sqlite3

import pytest

from proxy.store.outage import outage_from


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "readonly"),
        (errno.EACCES, "readonly"),
        (errno.EIO, "unavailable"),
    ],
)
def test_the_system_s_errors_are_told_apart(number: int, reason: str) -> None:
    assert outage_from(OSError(number, "as the system says")).reason == reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (sqlite3.SQLITE_BUSY, "locked"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "readonly"),
        (sqlite3.SQLITE_CORRUPT_VTAB, "corrupt"),
        (sqlite3.SQLITE_IOERR_READ, "unavailable"),
    ],
)
def test_the_finer_shades_of_sqlite_s_errors_belong_to_their_kind(code: int, reason: str) -> None:
    error = sqlite3.OperationalError("as SQLite says")
    error.sqlite_errorcode = code
    assert outage_from(error).reason == reason


def test_an_error_of_the_module_itself_has_no_code() -> None:
    assert outage_from(sqlite3.ProgrammingError("closed")).reason == "unavailable"
