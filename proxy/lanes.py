"""Where a conversation's lines stand: which fold a line was sent with, how it grows, what came of its folds.

A line is found by what it says, not by its name: one name may be shared by many (titles, branches, chats that
begin alike), and an edited or regenerated one goes on from the very place where it parted.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.conversation import BY_CONTENT, Conversation
from proxy.counting.prompt import ANSWERED_BY
from proxy.histories import Told
from proxy.ports import HOME_SIZE, Space
from proxy.prospects import Prospects
from proxy.recent import Recent
from proxy.store.writing import LateWriter

REMEMBERED = 8192
# How far back a line is looked for, in turns: in memory, and in the store when another worker has answered.
_REACH = 64
_ASKED_FOR = 16
# A history that has got another beginning is recognised by so many ends of requests in the store …
_ENDS_ASKED_FOR = 8
# … for so long: every request has one of its own, and to know it no more costs a summary at most.
_ENDS_KEPT = 24 * 3600.0


class Relation(StrEnum):
    """How a request goes on from those before it."""

    NEW = "new"
    CONTINUED = "continued"
    REPEATED = "repeated"  # asked again, or an answer generated anew
    BRANCHED = "branched"  # something else is said where the conversation had gone on already
    TRIMMED = "trimmed"  # the client has left out or rewritten an earlier part


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A turn as it is remembered: the message itself lies under its digest."""

    digest: bytes
    role: str
    at: float


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """How a line stood after a request. Never changed: the next request leaves a new one."""

    id: str
    conversation: str
    began: float
    length: int = 0
    fold: str | None = None  # the one that the request was sent with
    prefix: bytes | None = None  # that it stands for
    sent: int = 0  # tokens that were sent
    beside: bytes | None = None  # names the request's instructions and tools
    filled: int = 0  # of the marks in FILLINGS, how many the line has passed
    prospects: Prospects = Prospects()
    # Its turns: those that do not fill a page yet, and the chain's value where the last page ends.
    entries: tuple[Entry, ...] = ()
    page: bytes | None = None
    instructions: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    lane: Lane
    relation: Relation

    @property
    def since(self) -> int:
        """How many turns of the request the lane has seen at this place."""
        return self.lane.length

    def of_a_long_request(self) -> Found:
        """Where it does not go on from one before, it may be what is left of another."""
        if self.relation not in (Relation.NEW, Relation.BRANCHED):
            return self
        return Found(replace(self.lane, prospects=self.lane.prospects.doubtful()), self.relation)


class _End(NamedTuple):
    """A known request has ended there, behind another beginning."""

    place: int
    lane: Lane


_read = msgspec.msgpack.Decoder(Lane).decode
_write = msgspec.msgpack.Encoder().encode


class Lanes:
    def __init__(self, store: LateWriter, *, ttl: Callable[[], float], clock: Callable[[], float]) -> None:
        self._store = store
        self._ttl = ttl
        self._clock = clock
        self._lanes: Recent[bytes, Lane] = Recent(REMEMBERED)
        self._ends: Recent[bytes, Lane] = Recent(REMEMBERED)
        self._tips: Recent[str, bytes] = Recent(REMEMBERED)

    def recalling(self, tenant: bytes, conversation: Conversation, told: Told) -> Awaitable[None] | None:
        """Ask the store, where another may have answered the line's last request."""
        known = self.remembered(told)
        seen = known.length if known is not None else 0
        if (end := self._known_end(conversation, told, seen)) is not None:
            seen = end.place
        return self._recall(tenant, conversation, told, seen) if others_answered(told, seen) else None

    def find(self, conversation: Conversation, line: Told) -> Found:
        """By the longest beginning that it shares with a request that was answered; or by what was said last,
        where that is known behind another beginning.
        """
        known = self.remembered(line)
        end = self._known_end(conversation, line, known.length if known is not None else 0)
        if end is not None:
            return Found(_with_another_beginning(end, known, line), Relation.TRIMMED)
        if known is not None:
            return self._going_on(known, line)
        lane = Lane(id=secrets.token_hex(8), conversation=conversation.id, began=self._clock())
        return Found(lane, Relation.NEW)

    def remembered(self, line: Told) -> Lane | None:
        for length in range(line.length, max(0, line.length - _REACH), -1):
            if (lane := self._lanes.get(line.chain[length])) is not None:
                return lane
        return None

    def keep(self, tenant: bytes, conversation: Conversation, line: Told, lane: Lane) -> None:
        """After an answer: how the line stands now."""
        self._lanes.put(line.chain[-1], lane)
        self._tips.put(lane.id, line.chain[-1])
        self._store.later(tenant, Space.LANES, {line.home + line.chain[-1]: _write(lane)}, ttl=self._ttl())
        if line.length > 1:
            end = _end_of(conversation, line, line.length)
            self._ends.put(end, lane)
            if lane.prospects.has_something_to_lose:
                stripped = replace(lane, entries=(), page=None, instructions=())
                ttl = min(self._ttl(), _ENDS_KEPT)
                self._store.later(tenant, Space.LANES, {end: _write(stripped)}, ttl=ttl)

    def _going_on(self, found: Lane, line: Told) -> Found:
        if found.length == line.length:
            return Found(found, Relation.REPEATED)
        tip = self._tips.get(found.id)
        if tip is None or tip == line.chain[found.length]:
            return Found(found, Relation.CONTINUED)
        # Both can be read again, so each has a name.
        return Found(replace(found, id=secrets.token_hex(8)), Relation.BRANCHED)

    async def _recall(self, tenant: bytes, conversation: Conversation, line: Told, seen: int) -> None:
        lengths = range(line.length, max(seen, line.length - _ASKED_FOR), -1)
        keys = {length: line.home + line.chain[length] for length in lengths}
        ends = [end for _, end in islice(_ends(conversation, line, seen), _ENDS_ASKED_FOR)]
        values = await self._store.get(tenant, Space.LANES, [*keys.values(), *ends])
        for end in ends:
            if end in values and (lane := lane_from(values[end])) is not None:
                self._ends.put(end, lane)
                break
        for length, key in keys.items():
            stored = values.get(key)
            lane = lane_from(stored) if stored is not None else None
            # One that stands elsewhere than it says was never written by us.
            if lane is not None and lane.length == length:
                self._lanes.put(line.chain[length], lane)
                self._tips.put(lane.id, line.chain[length])
                return

    def _known_end(self, conversation: Conversation, line: Told, since: int) -> _End | None:
        """The newest of its turns with which a known request has ended, whatever stands before them."""
        for place, end in _ends(conversation, line, since):
            if (lane := self._ends.get(end)) is not None:
                return _End(place, lane)
        return None


def _ends(conversation: Conversation, line: Told, since: int) -> Iterator[tuple[int, bytes]]:
    """Where requests may have ended, from the newest, and what names that: an answer follows. At last where
    this one ends, which may be asked again; without a name that may be any conversation's question.
    """
    places = range(line.length - 1, max(since, 1, line.length - _REACH), -1)
    answered = [place for place in places if line.said[place].role == ANSWERED_BY]
    again = [line.length] if conversation.source != BY_CONTENT and line.length > max(since, 1) else []
    for place in (*answered, *again):
        yield place, _end_of(conversation, line, place)


def _end_of(conversation: Conversation, line: Told, place: int) -> bytes:
    """Names the two turns before this place, whatever stands before them; the tenant is in their identities.
    Where nobody says which conversation it is, another beginning gives it another name.
    """
    name = b"" if conversation.source == BY_CONTENT else conversation.id.encode()
    pair = line.said[place - 2].identity + line.said[place - 1].identity
    return blake2b(pair + name, digest_size=HOME_SIZE, person=b"end").digest()


def _with_another_beginning(end: _End, known: Lane | None, line: Told) -> Lane:
    """How the line stands after what has become of its beginning, of which some may be `known`."""
    before = end.lane
    prospects = before.prospects.rewritten(line.chain, left_out=end.place < before.length)
    lane = replace(before, length=0, entries=(), page=None, prospects=prospects)
    if known is None:
        return lane
    lane = replace(lane, length=known.length, entries=known.entries, page=known.page)
    still_there = before.prefix is None or before.prefix in line.chain
    return lane if still_there else replace(lane, fold=known.fold, prefix=known.prefix)


def others_answered(line: Told, seen: int) -> bool:
    """From one request to the next a line grows by one answer; the first request has none before it. `seen`
    is how many turns the last request had that was answered here.
    """
    if not seen:
        return line.length > 1
    return sum(each.role == ANSWERED_BY for each in line.said[seen:]) > 1


def lane_from(stored: bytes) -> Lane | None:
    """None where it is of another version, or was never a lane."""
    try:
        return _read(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
