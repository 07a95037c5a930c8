"""Small facts about the models of an upstream: in memory for what is in use, in the store for other workers
and for the next life of the process.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

import msgspec

from proxy.ports import NOBODY, Space
from proxy.recent import Recent
from proxy.store.writing import KEPT, LateWriter

T = TypeVar("T")

MODELS = 4096
# Other workers learn too: what they have written is looked for this often.
READ_AGAIN_AFTER = 60.0
_DIGEST_SIZE = 16

_write = msgspec.msgpack.Encoder().encode


class _Name(NamedTuple):
    tenant: bytes
    model: str


class _Entry(NamedTuple, Generic[T]):
    fact: T | None
    read_at: float


class Kept(Generic[T]):
    """`kind` tells apart what is kept under the same model, and `tenant` whose experience it is."""

    def __init__(
        self,
        shape: type[T],
        upstream: str,
        kind: bytes,
        store: LateWriter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._read = msgspec.msgpack.Decoder(shape).decode
        self._scope = kind + b"\0" + upstream.encode() + b"\0"
        self._store = store
        self._clock = clock
        self._entries: Recent[_Name, _Entry[T]] = Recent(MODELS)

    def get(self, model: str, tenant: bytes = NOBODY) -> T | None:
        """What is known without asking the store."""
        entry = self._entries.get(_Name(tenant, model))
        return entry.fact if entry is not None else None

    def put(self, model: str, fact: T, tenant: bytes = NOBODY) -> None:
        self._entries.put(_Name(tenant, model), _Entry(fact, self._clock()))
        self._store.later(tenant, Space.WINDOWS, {self._key(model): _write(fact)}, ttl=KEPT)

    def recalling(self, model: str, tenant: bytes = NOBODY) -> list[Awaitable[None]]:
        """Read what is stored: the first time, and then once in a while."""
        name = _Name(tenant, model)
        now, before = self._clock(), self._entries.get(name)
        if before is not None and 0 <= now - before.read_at < READ_AGAIN_AFTER:
            return []
        if before is not None:
            # One of many requests asks; the others go on with what is known.
            before = before._replace(read_at=now)
            self._entries.put(name, before)
        return [self._recall(name, before, now)]

    async def _recall(self, name: _Name, before: _Entry[T] | None, now: float) -> None:
        stored = await self._stored(name.tenant, self._key(name.model))
        # Somebody may have learned while the store was being asked.
        if self._entries.get(name) is before:
            known = before.fact if before is not None else None
            self._entries.put(name, _Entry(known if stored is None else stored, now))

    async def _stored(self, tenant: bytes, key: bytes) -> T | None:
        value = (await self._store.get(tenant, Space.WINDOWS, [key])).get(key)
        try:
            return None if value is None else self._read(value)
        except msgspec.MsgspecError:
            return None  # of another version: learned anew, and written over

    def _key(self, model: str) -> bytes:
        named = self._scope + model.encode(errors="surrogatepass")
        return blake2b(named, digest_size=_DIGEST_SIZE).digest()
