"""What the rooms of a request need from the outside, without saying who provides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

# What belongs to no caller: what was learned of models and upstreams, and the server's own secret.
NOBODY = b""

# A key of these spaces begins with its home: what lies in one home is asked for together, so a store that is
# spread over several servers keeps it on one of them.
HOME_SIZE = 16
# What many conversations of a caller share.
COMMON = bytes(HOME_SIZE)


class Space(StrEnum):
    """The kinds of things that a store keeps; keys of one never meet keys of another."""

    COUNTS = "counts"  # a message's digest and the counting scheme → its estimate
    ANCHORS = "anchors"  # a prefix as it was sent → what the upstream counted
    CALIBRATIONS = "calibrations"  # a model at an upstream → how its tokens relate to our estimates
    WINDOWS = "windows"  # a model at an upstream → what was learned of its window
    FOLDS = "folds"  # a history's prefix → the fold that stands in its place
    MESSAGES = "messages"  # a message's digest → the message itself
    LANES = "lanes"  # a conversation → what is known of it
    CLAIMS = "claims"  # a piece of work → who is at it
    SERVER = "server"  # the server's secret


HOMED = frozenset({Space.COUNTS, Space.ANCHORS, Space.FOLDS, Space.LANES})


class StoreUnavailable(Exception):
    """The store cannot be asked now; whoever asked goes on without it."""


class Store(Protocol):
    """Values under content-addressed keys. A value that cannot be read back is a miss, never an error.

    Every call takes the tenant: what one caller has stored is never found by another.
    """

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values that are there and have not expired."""
        ...

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        """Keep values for `ttl` seconds; of one home all or none. A value that is there is replaced, unless
        it is kept for good.
        """
        ...

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        """Keep `value` if there is none yet; the one that is kept, whoever was first.

        It is kept for `ttl` seconds from now at least. None is for the few things that everything hangs on:
        they are kept for good, and nothing replaces them or pushes them out (what merely does not expire has
        an infinite `ttl`). Once this has returned, the winner survives the death of the process.
        """
        ...

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        """Keep them no longer, not even what was kept for good. Raises StoreUnavailable where that cannot be
        promised: whoever wants something forgotten must not be told that it was.
        """
        ...

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        """Whether `holder` has the work to itself for `ttl` seconds from now. Who has it already renews it.

        A claim saves work and decides nothing: where two are at it all the same, `put_new` has one winner.
        """
        ...

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        """Give a claim back; nothing happens if somebody else has it by now."""
        ...

    async def close(self) -> None: ...
