"""What the rooms of a request need from the outside, without saying who provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

# What belongs to no caller: what was learned of models and upstreams, and the server's own secret.
NOBODY = b""


class Space(StrEnum):
    """The kinds of things that a store keeps; keys of one never meet keys of another."""

    COUNTS = "counts"  # a message's digest and the counting scheme → its estimate
    ANCHORS = "anchors"  # a prefix as it was sent → what the upstream counted
    CALIBRATIONS = "calibrations"  # a model at an upstream → how its tokens relate to our estimates
    WINDOWS = "windows"  # a model at an upstream → what was learned of its window
    SERVER = "server"  # the server's secret


class StoreUnavailable(Exception):
    """The store cannot be asked now; whoever asked goes on without it."""


class Store(Protocol):
    """Small values under content-addressed keys. A value that cannot be read back is a miss, never an error.

    Every call takes the tenant: what one caller has stored is never found by another.
    """

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values that are there and have not expired."""
        ...

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        """Keep values for `ttl` seconds; all of them or none. A value that is there is replaced."""
        ...

    async def settle(self, tenant: bytes, space: Space, key: bytes, value: bytes) -> bytes:
        """Keep `value` for good if there is none yet; the one that is kept, whoever was first."""
        ...

    async def close(self) -> None: ...
