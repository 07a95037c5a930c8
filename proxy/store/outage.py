"""Why a store cannot be asked, told apart as far as it changes what an operator has to do."""

from __future__ import annotations

import errno
import sqlite3
from typing import Literal

from proxy.ports import StoreUnavailable

Reason = Literal[
    "locked", "full", "readonly", "corrupt", "newer", "loading", "refused", "sealed", "unavailable"
]


class Outage(StoreUnavailable):
    """The message is for the log: it names the problem, never a key or a value. The hint says what to do."""

    def __init__(self, reason: Reason, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.hint = hint


_SQLITE: dict[int, Reason] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "readonly",
    sqlite3.SQLITE_PERM: "readonly",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}
_SYSTEM: dict[int | None, Reason] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "readonly",
    errno.EACCES: "readonly",
    errno.EPERM: "readonly",
}


def outage_from(error: sqlite3.Error | OSError) -> Outage:
    if isinstance(error, OSError):
        return Outage(_SYSTEM.get(error.errno, "unavailable"), error.strerror or type(error).__name__)
    # The low byte is the kind of error, the rest its finer shades; errors of the module itself have none.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return Outage(_SQLITE.get(code, "unavailable"), str(error))
