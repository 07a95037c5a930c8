"""Real processes that share a store's file. Each says `ready`, waits for a line, and then does its act."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.ports import NOBODY, Space
from proxy.store.sqlite import SqliteStore
from proxy.store.sqlite_file import FileOptions
from tests.store.doubles import FOREVER, PATIENCE

PATIENT = FileOptions(busy_timeout=PATIENCE)
CLAIMED_FOR = 10 * PATIENCE


def number_key(owner: str, number: int) -> bytes:
    return f"{owner}/{number}".encode()


async def write_without_end(store: SqliteStore, owner: str) -> None:
    number = 0
    while True:
        await store.put(NOBODY, Space.COUNTS, {number_key(owner, number): owner.encode()}, ttl=FOREVER)
        print(number, flush=True)
        number += 1


async def write_some(store: SqliteStore, owner: str) -> None:
    for number in range(100):
        await store.put(NOBODY, Space.COUNTS, {number_key(owner, number): owner.encode()}, ttl=FOREVER)
        await store.get(NOBODY, Space.COUNTS, [number_key(owner, number)])


async def put_new(store: SqliteStore, owner: str) -> None:
    """Fifty at once, each with a value of its own."""
    attempts = (
        store.put_new(NOBODY, Space.FOLDS, b"prefix", number_key(owner, number), ttl=FOREVER)
        for number in range(50)
    )
    print(*{winner.decode() for winner in await asyncio.gather(*attempts)}, flush=True)


async def put_new_and_stay(store: SqliteStore, owner: str) -> None:
    await put_new(store, owner)
    sys.stdin.readline()


async def claim_some(store: SqliteStore, owner: str) -> None:
    attempts = [store.claim(NOBODY, bytes([number]), owner.encode(), ttl=CLAIMED_FOR) for number in range(50)]
    claimed = await asyncio.gather(*attempts)
    print(*(number for number in range(50) if claimed[number]), flush=True)


async def claim_some_and_stay(store: SqliteStore, owner: str) -> None:
    await claim_some(store, owner)
    sys.stdin.readline()


async def leave_it_open(store: SqliteStore, owner: str) -> None:
    """The end of the process comes while a write is waiting for a lock."""
    task = asyncio.ensure_future(write_some(store, owner))
    await asyncio.sleep(0)
    task.cancel()


ACTS = {
    act.__name__: act
    for act in (
        write_without_end,
        write_some,
        put_new,
        put_new_and_stay,
        claim_some,
        claim_some_and_stay,
        leave_it_open,
    )
}


async def main(act: str, path: str, owner: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = await SqliteStore.open(Path(path), PATIENT)
    await ACTS[act](store, owner)
    if act != "leave_it_open":
        await store.close()


@contextmanager
def acting(act: str, path: Path, owner: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.processes", act, str(path), owner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
