"""What came of a conversation's folds, as far as its name tells: for lines of which nothing else is known.

A name may be shared by many lines, so it says little: that folds were begun under it for which nobody has had
a use yet. One line that goes on is enough to clear it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from hashlib import blake2b

import msgspec

from proxy.conversation import BY_CONTENT, Conversation
from proxy.ports import HOME_SIZE, Space
from proxy.prospects import MOST_UNUSED
from proxy.recent import Recent
from proxy.store.writing import LateWriter

REMEMBERED = 8192
# One request may have been under way beside the one that a fold was begun for.
_SURE = 2


class Unseen(msgspec.Struct, frozen=True, array_like=True):
    """A fold by its prefix, and how many later requests had it."""

    prefix: bytes
    seen: int = 0


_read = msgspec.msgpack.Decoder(tuple[Unseen, ...]).decode
_write = msgspec.msgpack.Encoder().encode


class Hearsay:
    def __init__(self, store: LateWriter, *, ttl: Callable[[], float]) -> None:
        self._store = store
        self._ttl = ttl
        self._begun: Recent[bytes, tuple[Unseen, ...]] = Recent(REMEMBERED)

    def recalling(self, tenant: bytes, conversation: Conversation) -> Awaitable[None] | None:
        """Ask the store, where another may have begun some, or seen them again."""
        return self._recall(tenant, conversation) if _is_named(conversation) else None

    def unused(self, tenant: bytes, conversation: Conversation) -> int:
        """How many folds nobody has had a use for."""
        return len(self._begun.get(_named(tenant, conversation)) or ())

    def answered(
        self, tenant: bytes, conversation: Conversation, chain: Container[bytes], begun: bytes | None
    ) -> None:
        """A request that has this chain; `begun` is the prefix of a fold that was begun for it."""
        if not _is_named(conversation):
            return
        named = _named(tenant, conversation)
        before = self._begun.get(named) or ()
        after = tuple(Unseen(each.prefix, each.seen + (each.prefix in chain)) for each in before)
        if any(each.seen >= _SURE for each in after):
            after = ()
        if begun is not None and all(each.prefix != begun for each in after):
            after = (*after, Unseen(begun))[-MOST_UNUSED:]
        if after != before:
            self._begun.put(named, after)
            self._store.later(tenant, Space.LANES, {named: _write(after)}, ttl=self._ttl())

    async def _recall(self, tenant: bytes, conversation: Conversation) -> None:
        named = _named(tenant, conversation)
        stored = (await self._store.get(tenant, Space.LANES, [named])).get(named)
        begun = _from(stored) if stored is not None else None
        if begun is not None:
            self._begun.put(named, begun)


def _from(stored: bytes) -> tuple[Unseen, ...] | None:
    """None where it was never written by us."""
    try:
        return _read(stored)
    except msgspec.MsgspecError:
        return None


def _is_named(conversation: Conversation) -> bool:
    return conversation.source != BY_CONTENT


def _named(tenant: bytes, conversation: Conversation) -> bytes:
    """A home of its own. Keyed, so that nobody who sees the store's keys can try names."""
    named = blake2b(conversation.id.encode(), digest_size=HOME_SIZE, key=tenant, person=b"hearsay")
    return named.digest()
