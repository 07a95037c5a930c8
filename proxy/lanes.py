"""Where a conversation's lines stand: which fold a line was sent with, how it grows, what came of its folds.

A line is found by what it says, not by its name: one name may be shared by many (titles, branches, chats that
begin alike), and an edited or regenerated one goes on from the very place where it parted.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.conversation import BY_CONTENT, Conversation
from proxy.counting.prompt import ANSWERED_BY
from proxy.histories import Told
from proxy.ports import Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

REMEMBERED = 8192
# How far back a line is looked for, in turns: in memory, and in the store when another worker has answered.
_REACH = 64
_ASKED_FOR = 16
# How far from its end two turns may stand by which a trimmed history is recognised.
_NEAR_THE_END = 8


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
    # Of the fold that was begun last: its prefix, until when it counts as being made, and what came of those.
    making: bytes | None = None
    making_until: float = 0.0
    unused: int = 0
    futile: int = 0  # folds in a row that have freed too little
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
        return 0 if self.relation in (Relation.NEW, Relation.TRIMMED) else self.lane.length


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

    def recalling(self, tenant: bytes, told: Told) -> Awaitable[None] | None:
        """Ask the store, where another may have answered the line's last request."""
        found = self.remembered(told)
        return self._recall(tenant, told, found) if others_answered(told, found) else None

    def find(self, conversation: Conversation, line: Told) -> Found:
        """By the longest beginning that it shares with a request that was answered."""
        if (found := self.remembered(line)) is not None:
            return self._going_on(found, line)
        if (trimmed := self._trimmed(line)) is not None and _may_be_called(conversation, trimmed):
            return Found(trimmed, Relation.TRIMMED)
        lane = Lane(id=secrets.token_hex(8), conversation=conversation.id, began=self._clock())
        return Found(lane, Relation.NEW)

    def remembered(self, line: Told) -> Lane | None:
        for length in range(line.length, max(0, line.length - _REACH), -1):
            if (lane := self._lanes.get(line.chain[length])) is not None:
                return lane
        return None

    def keep(self, tenant: bytes, line: Told, lane: Lane) -> None:
        """After an answer: how the line stands now."""
        self._lanes.put(line.chain[-1], lane)
        self._tips.put(lane.id, line.chain[-1])
        if (end := _pair(line, line.length)) is not None:
            self._ends.put(end, lane)
        self._store.later(tenant, Space.LANES, {line.home + line.chain[-1]: _write(lane)}, ttl=self._ttl())

    def _going_on(self, found: Lane, line: Told) -> Found:
        if found.length == line.length:
            return Found(found, Relation.REPEATED)
        tip = self._tips.get(found.id)
        if tip is None or tip == line.chain[found.length]:
            return Found(found, Relation.CONTINUED)
        # Both can be read again, so each has a name.
        return Found(replace(found, id=secrets.token_hex(8)), Relation.BRANCHED)

    async def _recall(self, tenant: bytes, line: Told, known: Lane | None) -> None:
        shortest = max(known.length if known is not None else 0, line.length - _ASKED_FOR)
        keys = {length: line.home + line.chain[length] for length in range(line.length, shortest, -1)}
        values = await self._store.get(tenant, Space.LANES, list(keys.values()))
        for length, key in keys.items():
            stored = values.get(key)
            lane = lane_from(stored) if stored is not None else None
            # One that stands elsewhere than it says was never written by us.
            if lane is not None and lane.length == length:
                self._lanes.put(line.chain[length], lane)
                self._tips.put(lane.id, line.chain[length])
                return

    def _trimmed(self, line: Told) -> Lane | None:
        """What was last said in a known line stands in this one too, behind another beginning."""
        for end in range(line.length, max(1, line.length - _NEAR_THE_END), -1):
            pair = _pair(line, end)
            if pair is not None and (lane := self._ends.get(pair)) is not None:
                return lane
        return None


def _may_be_called(conversation: Conversation, lane: Lane) -> bool:
    """Where nobody says which conversation it is, another beginning gives it another name."""
    return conversation.source == BY_CONTENT or conversation.id == lane.conversation


def others_answered(line: Told, found: Lane | None) -> bool:
    """From one request to the next a line grows by one answer; the first request has none before it."""
    if found is None:
        return line.length > 1
    return sum(each.role == ANSWERED_BY for each in line.said[found.length :]) > 1


def unused_folds(lane: Lane, line: Told) -> int:
    """How many were made in vain: the last one too, if it was for a beginning that the line no longer has."""
    in_vain = lane.making is not None and lane.making not in line.chain
    return lane.unused + in_vain


def lane_from(stored: bytes) -> Lane | None:
    """None where it is of another version, or was never a lane."""
    try:
        return _read(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _pair(line: Told, end: int) -> bytes | None:
    """Names two turns in a row, whatever stands before them; the tenant is in their identities."""
    if end < 2:
        return None
    return line.said[end - 2].identity + line.said[end - 1].identity
