"""Small facts about a model at an upstream, kept in the store from one life of the process to the next."""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from proxy.ports import NOBODY, Space
from proxy.store.writing import LateWriter

T = TypeVar("T")

KEPT = 30 * 24 * 3600.0
_DIGEST_SIZE = 16

_write = msgspec.msgpack.Encoder().encode


class Kept(Generic[T]):
    """`kind` tells apart what is kept under the same model."""

    def __init__(self, shape: type[T], upstream: str, kind: bytes, store: LateWriter) -> None:
        self._read = msgspec.msgpack.Decoder(shape).decode
        self._scope = kind + b"\0" + upstream.encode() + b"\0"
        self._store = store

    async def read(self, model: str) -> T | None:
        key = self._key(model)
        value = (await self._store.get(NOBODY, Space.WINDOWS, [key])).get(key)
        try:
            return None if value is None else self._read(value)
        except msgspec.MsgspecError:
            return None  # of another version: learned anew, and written over

    def write(self, model: str, fact: T) -> None:
        self._store.later(NOBODY, Space.WINDOWS, {self._key(model): _write(fact)}, ttl=KEPT)

    def _key(self, model: str) -> bytes:
        named = self._scope + model.encode(errors="surrogatepass")
        return blake2b(named, digest_size=_DIGEST_SIZE).digest()
