"""Asking the store for what was kept there: whatever cannot be had or understood is simply not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from proxy.ports import Space, StoreUnavailable
from proxy.store.writing import LateWriter

T = TypeVar("T")


async def recalled(
    store: LateWriter, tenant: bytes, space: Space, keys: Sequence[bytes], read: Callable[[bytes], T]
) -> dict[bytes, T]:
    return understood(await stored(store, tenant, space, keys), read)


async def stored(store: LateWriter, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    try:
        return await store.get(tenant, space, keys)
    except StoreUnavailable:
        return {}  # said where the store is watched over


def understood(values: Mapping[bytes, bytes], read: Callable[[bytes], T]) -> dict[bytes, T]:
    found = {}
    for key, value in values.items():
        try:
            found[key] = read(value)
        except msgspec.MsgspecError:
            continue  # of another version: learned anew, and written over
    return found
