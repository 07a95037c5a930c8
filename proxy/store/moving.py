"""Taking what one store keeps to another, by way of a file.

A file has one JSON object a line: a head, the entries, and a last line that says how many there are. Tenants
are names under the server's secret, so the secret comes along as the first entry: with another one, nothing
of the rest would ever be found.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

import msgspec

from proxy.ports import Space, Store
from proxy.store.entries import Entry, Listed
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.mark import is_sealed
from proxy.store.slots import SECRET

_FORMAT, _VERSION = "tailfold store", 1
# Of the server's own only the secret is moved; the rest is of the moment, as claims are.
_STAY = frozenset({Space.SERVER, Space.CLAIMS})
_AT_ONCE = 64


_Until = float | Literal["never", "for good"]


class NotMovable(Exception):
    """The message says why, and what to do; it holds no key and no value."""


class _Head(msgspec.Struct, frozen=True, tag_field="is", tag="head"):
    format: str
    version: int
    sealed: bool


class _Line(msgspec.Struct, frozen=True, tag_field="is", tag="entry"):
    tenant: bytes
    space: Space
    key: bytes
    value: bytes
    until: _Until


class _End(msgspec.Struct, frozen=True, tag_field="is", tag="end"):
    entries: int


@dataclass(slots=True)
class Moved:
    entries: int = 0
    left_out: Counter[Unreadable] = field(default_factory=Counter)
    kept: int = 0  # another value was there already, and stays
    expired: int = 0


_write = msgspec.json.Encoder().encode
_read_head = msgspec.json.Decoder(_Head).decode
_read_line: Callable[[bytes], _Line | _End] = msgspec.json.Decoder(_Line | _End).decode


async def exported(
    store: Listed, secret: bytes, moved: Moved, *, keyring: Keyring | None, opened: bool
) -> AsyncIterator[bytes]:
    """The lines of a file; values are sealed in it as they are in the store, unless it is to be `opened`."""
    seal = keyring if not opened else None
    yield _written(_Head(_FORMAT, _VERSION, seal is not None))
    yield _written(_line(Entry(*SECRET, secret, None), seal))
    moved.entries = 1
    async for entry in store.entries():
        if entry.space in _STAY:
            continue
        readable = _opened(entry, keyring)
        if isinstance(readable, Unreadable):
            moved.left_out[readable] += 1
            continue
        yield _written(_line(readable, seal))
        moved.entries += 1
    yield _written(_End(moved.entries))


async def imported(
    lines: Iterable[bytes],
    store: Store,
    secret: bytes | None,
    moved: Moved,
    *,
    keyring: Keyring | None,
    clock: Callable[[], float] = time.time,
) -> None:
    """What is in the store already stays as it is. `secret` is the one that the settings say, if they do."""
    entries = _entries(lines, keyring, moved)
    first = next(entries, None)
    if first is None or first.slot != SECRET:
        raise NotMovable("the file does not begin with the server's secret, or it cannot be decrypted")
    await _agreed_on(first.value, store, secret)
    moved.entries = 1
    for batch in _batches(entries):
        await asyncio.gather(*(_imported(entry, store, clock(), moved) for entry in batch))


async def _agreed_on(theirs: bytes, store: Store, said: bytes | None) -> None:
    ours = said if said is not None else await store.put_new(*SECRET, theirs, ttl=None)
    if ours != theirs:
        raise NotMovable(
            "callers are named by another secret here, so that nothing of it would be found: set the secret "
            "to that of the other store (tailfold store secret --store …), or import into an empty store"
        )


async def _imported(entry: Entry, store: Store, now: float, moved: Moved) -> None:
    ttl = entry.lasts(now)
    if ttl is not None and ttl <= 0:
        moved.expired += 1
    elif await store.put_new(*entry.slot, entry.value, ttl=ttl) == entry.value:
        moved.entries += 1
    else:
        moved.kept += 1


def _entries(lines: Iterable[bytes], keyring: Keyring | None, moved: Moved) -> Iterator[Entry]:
    """Each line is looked at when it is asked for: a file may be larger than memory."""
    numbered = enumerate(lines, 1)
    head = _head(next(numbered, (1, b""))[1])
    if head.sealed and keyring is None:
        raise NotMovable("the file is encrypted: set encryption.keys to the keys with which it was exported")
    count = 0
    for number, text in numbered:
        line = _told(text, number)
        if isinstance(line, _End):
            if line.entries != count:
                raise NotMovable(f"the file says it has {line.entries:,} entries, and has {count:,}")
            return
        count += 1
        entry = _opened(_entry(line), keyring if head.sealed else None)
        if isinstance(entry, Unreadable):
            moved.left_out[entry] += 1
        else:
            yield entry
    raise NotMovable(f"the file ends after {count:,} entries and before its last line: it was cut off")


def _head(text: bytes) -> _Head:
    try:
        head = _read_head(text)
    except msgspec.MsgspecError:
        head = None
    if head is None or head.format != _FORMAT:
        raise NotMovable("this is not a file of tailfold store export")
    if head.version != _VERSION:
        raise NotMovable(f"the file has version {head.version}, which a newer Tailfold has written")
    return head


def _told(text: bytes, number: int) -> _Line | _End:
    try:
        return _read_line(text)
    except (msgspec.MsgspecError, RecursionError):
        raise NotMovable(f"line {number} of the file cannot be read") from None


def _line(entry: Entry, seal: Keyring | None) -> _Line:
    value = seal.seal(entry.slot, entry.value) if seal is not None else entry.value
    until: _Until = "for good" if entry.until is None else "never" if entry.until == inf else entry.until
    return _Line(entry.tenant, entry.space, entry.key, value, until)


def _entry(line: _Line) -> Entry:
    until = {"never": inf, "for good": None}[line.until] if isinstance(line.until, str) else line.until
    return Entry(line.tenant, line.space, line.key, line.value, until)


def _opened(entry: Entry, keyring: Keyring | None) -> Entry | Unreadable:
    if keyring is None:
        return Unreadable.FOREIGN if is_sealed(entry.value) else entry
    value = keyring.open(entry.slot, entry.value)
    return entry._replace(value=value) if isinstance(value, bytes) else value


def _written(struct: msgspec.Struct) -> bytes:
    return _write(struct) + b"\n"


def _batches(entries: Iterator[Entry]) -> Iterator[Sequence[Entry]]:
    batch: list[Entry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    yield batch
