"""Saying a thing once, however often it happens."""

from __future__ import annotations

import threading


class Once:
    """Remembers a bounded number of kinds; past it nothing is new, so a log cannot be flooded.

    Safe to ask from several threads: exactly one of them is told that it is the first.
    """

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def first(self, kind: str) -> bool:
        with self._lock:
            if kind in self._seen or len(self._seen) >= self._limit:
                return False
            self._seen.add(kind)
            return True
