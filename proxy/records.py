"""What was said, kept so that it can be read again: each message once, and the turns of every line in pages.

Written after the answer, in no request's way. Clients resend their whole history, so what got lost is written
again with the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import NamedTuple

import msgspec

from proxy.counting.prompt import OUTSIDE_THE_CHAIN
from proxy.histories import Line, last_spoken, raw_of
from proxy.lanes import Entry, Lane, lane_from
from proxy.ports import HOME_SIZE, Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

PAGE = 16
REMEMBERED = 64 * 1024
MOST_LANES = 64
_DIGEST_SIZE = 16


class Page(msgspec.Struct, frozen=True, array_like=True):
    """So many turns of a line, and the name of the page before."""

    entries: tuple[Entry, ...]
    before: bytes | None = None


class Tip(msgspec.Struct, frozen=True, array_like=True):
    """The newest request of a lane."""

    lane: str
    key: bytes  # under which it is kept
    length: int
    at: float


@dataclass(frozen=True, slots=True)
class Spoken:
    """A turn as it was said; `raw` is None where only its digest is kept, or where it has expired."""

    number: int  # from 1
    role: str
    at: float
    digest: bytes
    raw: bytes | None


class _Filed(NamedTuple):
    entries: tuple[Entry, ...]
    page: bytes | None


_write = msgspec.msgpack.Encoder().encode
_read_page = msgspec.msgpack.Decoder(Page).decode
_read_tips = msgspec.msgpack.Decoder(tuple[Tip, ...]).decode


class Records:
    def __init__(
        self, store: LateWriter, *, ttl: Callable[[], float], keep_messages: bool, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._ttl = ttl
        self._keep_messages = keep_messages
        self._clock = clock
        self._written: Recent[bytes, float] = Recent(REMEMBERED)  # until when each is surely in the store
        self._tips: Recent[bytes, tuple[Tip, ...]] = Recent(REMEMBERED // 16)

    def store_is_back(self) -> None:
        """Perhaps without what it kept: what is said again is written again."""
        self._written = Recent(REMEMBERED)

    def file(self, tenant: bytes, line: Line, lane: Lane, since: int) -> Lane:
        """The lane with the turns that it has not seen yet, `since` of which it has. They are on their way
        into the store then.
        """
        messages = line.measured.messages
        added = last_spoken(line.measured, line.length - since)
        outside = [place for place, message in enumerate(messages) if message.role in OUTSIDE_THE_CHAIN]
        now = self._clock()
        spoken, instructions = (
            [Entry(messages[place].digest, messages[place].role, now) for place in places]
            for places in (added, outside)
        )
        before = _Filed(lane.entries, lane.page) if since else _Filed((), None)
        filed = self._in_pages(tenant, line, before, spoken, since)
        if self._keep_messages:
            self._keep(tenant, line, [*outside, *added])
        return msgspec.structs.replace(
            lane,
            length=line.length,
            entries=filed.entries,
            page=filed.page,
            instructions=tuple(instructions),
        )

    async def name(self, tenant: bytes, line: Line, lane: Lane) -> None:
        """Find the lane by its conversation from now on."""
        key = _named(tenant, lane.conversation)
        tip = Tip(lane.id, line.home + line.chain[-1], line.length, self._clock())
        stored = await self._stored_tips(tenant, key)
        # Others name lanes of it at the same time: other workers in the store, other requests here.
        tips = _newest([tip, *(self._tips.get(tenant + key) or ()), *stored])
        self._tips.put(tenant + key, tips)
        self._store.later(tenant, Space.LANES, {key: _write(tips)}, ttl=self._ttl())

    async def lanes(self, tenant: bytes, conversation: str) -> list[Tip]:
        """The lanes of a conversation, the newest first."""
        return [*await self._stored_tips(tenant, _named(tenant, conversation))]

    async def turns(self, tenant: bytes, tip: Tip) -> list[Spoken]:
        """All that was said in a lane, from the first turn on that has not expired."""
        stored = (await self._store.get(tenant, Space.LANES, [tip.key])).get(tip.key)
        lane = lane_from(stored) if stored is not None else None
        if lane is None:
            return []
        entries = [entry for page in await self._pages(tenant, tip.key[:HOME_SIZE], lane) for entry in page]
        raws = await self._store.get(tenant, Space.MESSAGES, list({entry.digest for entry in entries}))
        return [
            Spoken(number, entry.role, entry.at, entry.digest, raws.get(entry.digest))
            for number, entry in enumerate(entries, lane.length - len(entries) + 1)
        ]

    async def _stored_tips(self, tenant: bytes, key: bytes) -> tuple[Tip, ...]:
        stored = (await self._store.get(tenant, Space.LANES, [key])).get(key)
        try:
            return _read_tips(stored) if stored is not None else ()
        except msgspec.MsgspecError:
            return ()

    async def _pages(self, tenant: bytes, home: bytes, lane: Lane) -> list[tuple[Entry, ...]]:
        pages, name = [lane.entries], lane.page
        while name is not None:
            key = home + _page_of(name)
            stored = (await self._store.get(tenant, Space.LANES, [key])).get(key)
            try:
                page = _read_page(stored) if stored is not None else Page(())
            except msgspec.MsgspecError:
                page = Page(())
            pages.append(page.entries)
            name = page.before
        return pages[::-1]

    def _in_pages(
        self, tenant: bytes, line: Line, before: _Filed, added: Sequence[Entry], since: int
    ) -> _Filed:
        entries, page = [*before.entries], before.page
        pages: dict[bytes, bytes] = {}
        for number, entry in enumerate(added, since + 1):
            entries.append(entry)
            if len(entries) == PAGE:
                pages[line.home + _page_of(line.chain[number])] = _write(Page(tuple(entries), page))
                entries, page = [], line.chain[number]
        if pages:
            self._store.later(tenant, Space.LANES, pages, ttl=self._ttl())
        return _Filed(tuple(entries), page)

    def _keep(self, tenant: bytes, line: Line, places: Sequence[int]) -> None:
        """Each message once, as far as this process remembers what it has written; again before it expires,
        where it is said again.
        """
        messages, now, ttl = line.measured.messages, self._clock(), self._ttl()
        values = {
            messages[place].digest: raw_of(line.measured, place)
            for place in places
            if (self._written.get(messages[place].digest) or -inf) <= now
        }
        for digest in values:
            self._written.put(digest, now + ttl / 2)
        if values:
            self._store.later(tenant, Space.MESSAGES, values, ttl=ttl)


def _newest(tips: Sequence[Tip]) -> tuple[Tip, ...]:
    """Of each lane the newest tip, from new to old; of two that are equally new the first."""
    newest: dict[str, Tip] = {}
    for tip in sorted(tips, key=lambda tip: -tip.at):
        newest.setdefault(tip.lane, tip)
    return tuple(newest.values())[:MOST_LANES]


def _named(tenant: bytes, conversation: str) -> bytes:
    """A home of its own, since one name may hold several conversations. Keyed, so that nobody who sees the
    store's keys can try names.
    """
    named = blake2b(conversation.encode(), digest_size=HOME_SIZE, key=tenant, person=b"conversation")
    return named.digest()


def _page_of(name: bytes) -> bytes:
    return blake2b(name, digest_size=_DIGEST_SIZE, person=b"page").digest()
