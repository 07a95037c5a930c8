"""What lies in a store, by its space: how many values, and how many bytes they take there."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from proxy.ports import HOMED
from proxy.store.redis_keys import ALL, named


@dataclass(frozen=True, slots=True)
class Room:
    keys: int = 0  # of the store's own kind: rows of a file, keys of a server
    values: int = 0
    bytes: int = 0

    def __add__(self, other: Room) -> Room:
        return Room(self.keys + other.keys, self.values + other.values, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Kept:
    spaces: Mapping[str, Room]
    whole: int  # bytes of the file; of a server, of all its keys


def in_valkey(port: int) -> Kept:
    """By the server's own account (MEMORY USAGE), names and overhead included."""
    spaces: defaultdict[str, Room] = defaultdict(Room)
    with Redis(port=port) as server:
        for name in server.scan_iter(match=ALL, count=500):
            where = named(name)
            assert where is not None
            values = server.hlen(name) if where.space in HOMED else 1
            spaces[where.space] += Room(1, values, server.memory_usage(name, samples=0))
    return Kept(dict(spaces), sum(room.bytes for room in spaces.values()))


def in_file(path: Path) -> Kept:
    """Of a file that nobody uses. Names and values alone: pages and the index come on top of them."""
    measure = "sum(length(tenant) + length(space) + length(key) + length(value))"
    database = sqlite3.connect(path)
    try:
        rows = database.execute(f"SELECT space, count(*), {measure} FROM facts GROUP BY space").fetchall()
    finally:
        database.close()
    return Kept({space: Room(count, count, size) for space, count, size in rows}, path.stat().st_size)
