"""A store in a folder, one file for each value: `folder:///var/share/tailfold`.

A file holds until when it is to be kept, and then the value. One lock for the whole folder makes every change
whole, among all processes that use it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import math
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from proxy.ports import Space, Store, StoreUnavailable

T = TypeVar("T")

_UNTIL = struct.Struct(">d")
_FOR_GOOD = math.nan  # what merely never expires has an infinite time, and may be replaced


class _Kept(NamedTuple):
    value: bytes
    until: float

    @property
    def for_good(self) -> bool:
        return math.isnan(self.until)


async def open_store(url: str) -> Store:
    """What the entry point names. A problem is told as StoreUnavailable, here and in every call."""
    store = FolderStore(Path(unquote(urlsplit(url).path)))
    await store.get(b"", Space.SERVER, [b"is the folder there?"])
    return store


class FolderStore:
    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        def act() -> dict[bytes, bytes]:
            found = ((key, self._read(self._path(tenant, space, key))) for key in keys)
            return {key: kept.value for key, kept in found if kept is not None}

        return await self._alone(act)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        def act() -> None:
            until = self._clock() + ttl
            kept = {self._path(tenant, space, key): _Kept(value, until) for key, value in values.items()}
            self._write({path: new for path, new in kept.items() if not _is_for_good(self._read(path))})

        await self._alone(act)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        def act() -> bytes:
            path = self._path(tenant, space, key)
            present = self._read(path)
            if present is not None and present.for_good:
                return present.value
            until = _FOR_GOOD if ttl is None else self._clock() + ttl
            kept = _Kept(value, until) if present is None else _Kept(present.value, _later(until, present))
            self._write({path: kept})
            return kept.value

        return await self._alone(act)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        def act() -> None:
            for key in keys:
                self._path(tenant, space, key).unlink(missing_ok=True)

        await self._alone(act)

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        def act() -> bool:
            path = self._path(tenant, Space.CLAIMS, key)
            claimed = self._read(path)
            if claimed is not None and claimed.value != holder:
                return False
            self._write({path: _Kept(holder, self._clock() + ttl)})
            return True

        return await self._alone(act)

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        def act() -> None:
            path = self._path(tenant, Space.CLAIMS, key)
            claimed = self._read(path)
            if claimed is not None and claimed.value == holder:
                path.unlink()

        await self._alone(act)

    async def close(self) -> None:
        """Nothing stays open between two calls."""

    async def _alone(self, act: Callable[[], T]) -> T:
        """On a thread, since disks make one wait, and requests must not."""
        return await asyncio.to_thread(partial(self._locked, act))

    def _locked(self, act: Callable[[], T]) -> T:
        try:
            with _lock(self._folder):
                return act()
        except OSError as problem:
            # It is logged: the kind of problem, but no path, key or value.
            raise StoreUnavailable(problem.strerror or type(problem).__name__) from problem

    def _path(self, tenant: bytes, space: Space, key: bytes) -> Path:
        # Keys are bytes of any kind and length, which names of files are not.
        return self._folder / (tenant.hex() or "nobody") / space / hashlib.sha256(key).hexdigest()

    def _read(self, path: Path) -> _Kept | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) < _UNTIL.size:
            return None  # what cannot be read back is a miss, never an error
        kept = _Kept(content[_UNTIL.size :], *_UNTIL.unpack_from(content))
        if not kept.for_good and kept.until <= self._clock():
            path.unlink()
            return None
        return kept

    def _write(self, values: Mapping[Path, _Kept]) -> None:
        """All or none: what may fail, which is the writing, is done before the first is put in its place."""
        drafts: dict[Path, Path] = {}
        try:
            for number, (path, kept) in enumerate(values.items()):
                draft = self._folder / f"draft-{number}"
                drafts[draft] = path
                _write_private(draft, _UNTIL.pack(kept.until) + kept.value)
                path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            for draft in drafts:
                draft.unlink(missing_ok=True)
            raise
        for draft, path in drafts.items():
            draft.replace(path)


def _write_private(path: Path, content: bytes) -> None:
    """For its owner alone, whatever the folder's rights and the umask are: values are conversations."""
    path.unlink(missing_ok=True)  # one that was left behind would keep its rights
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _is_for_good(kept: _Kept | None) -> bool:
    return kept is not None and kept.for_good


def _later(until: float, present: _Kept) -> float:
    return until if math.isnan(until) else max(until, present.until)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
