"""From a measured request to its history: what each message says is read once, however often it is resent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from proxy.counting.estimate import Estimate
from proxy.counting.prompt import OUTSIDE_THE_CHAIN, Named
from proxy.counting.recollection import Measured
from proxy.fold.history import History, Turn, beginning, home_in, linked
from proxy.fold.identity import Said, said
from proxy.recent import Recent

REMEMBERED_LINES = 512
REMEMBERED_MESSAGES = 32 * 1024
# How far back from its end a history is compared with those that are remembered: clients add a few messages.
_REACH = 64
# Below this a thread costs more than the reading.
_INLINE_BYTES = 32 * 1024


class Parts(Protocol):
    """A request in its messages, whether they are counted or not."""

    @property
    def array(self) -> bytes: ...

    @property
    def ends(self) -> Sequence[int]: ...

    @property
    def messages(self) -> Sequence[Named]: ...

    @property
    def chain(self) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True)
class Told:
    """What the spoken messages of a request say, in their order, and the chain that they make: no byte of
    what was said.
    """

    said: Sequence[Said] = ()
    chain: Sequence[bytes] = ()

    @property
    def length(self) -> int:
        return len(self.said)

    @property
    def home(self) -> bytes:
        """Where all that is kept of the conversation lies."""
        return home_in(self.chain)


@dataclass(frozen=True, slots=True)
class Line(Told):
    """The same with the messages themselves, which have been counted."""

    measured: Measured = field(kw_only=True)


class Histories:
    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._lines: Recent[bytes, Told] = Recent(REMEMBERED_LINES)
        self._said: Recent[bytes, Said] = Recent(REMEMBERED_MESSAGES)

    async def told(self, tenant: bytes, parts: Parts) -> Told | None:
        """None where the messages cannot be told apart: such a request is forwarded as it came."""
        if len(parts.ends) != len(parts.messages) or not parts.messages:
            return None
        known, length = self._longest_known(parts.chain)
        new = last_spoken(parts, len(parts.chain) - 1 - length)
        told = _extended(tenant, known, length, await self._said_in(tenant, parts, new))
        self._lines.put(parts.chain[-1], told)
        return told

    def _longest_known(self, exact: Sequence[bytes]) -> tuple[Told, int]:
        """The two chains have the same length: one names what is said, the other every byte of it."""
        for length in range(len(exact) - 1, max(0, len(exact) - 1 - _REACH), -1):
            if (told := self._lines.get(exact[length])) is not None:
                return told, length
        return Told(), 0

    async def _said_in(self, tenant: bytes, parts: Parts, places: Sequence[int]) -> list[Said]:
        digests = [parts.messages[place].digest for place in places]
        found = {digest: each for digest in digests if (each := self._said.get(digest)) is not None}
        unread = {
            digest: raw_of(parts, place)
            for digest, place in zip(digests, places, strict=True)
            if digest not in found
        }
        read = partial(_read, tenant, unread)
        if sum(map(len, unread.values())) <= _INLINE_BYTES:
            found |= read()
        else:
            found |= await asyncio.get_running_loop().run_in_executor(self._pool, read)
        for digest in unread:
            self._said.put(digest, found[digest])
        return [found[digest] for digest in digests]


def _read(tenant: bytes, raws: Mapping[bytes, bytes]) -> dict[bytes, Said]:
    return {digest: said(raw, tenant) for digest, raw in raws.items()}


def line_of(told: Told, measured: Measured) -> Line:
    return Line(told.said, told.chain, measured=measured)


def _extended(tenant: bytes, known: Told, length: int, added: Sequence[Said]) -> Told:
    chain = [*known.chain[: length + 1]] or [beginning(tenant)]
    for each in added:
        chain.append(linked(chain[-1], each.identity))
    return Told([*known.said[:length], *added], chain)


def history_of(
    line: Line, instructing: Callable[[Estimate], float], speaking: Callable[[Estimate], float]
) -> History:
    """All messages with their sizes, ready to be planned with."""
    measured, told = line.measured, iter(line.said)
    turns: list[Turn] = []
    spoken: list[int] = []
    for place, message in enumerate(measured.messages):
        raw, role = raw_of(measured, place), message.role
        if role in OUTSIDE_THE_CHAIN:
            turns.append(Turn(raw, role, b"", _size(instructing(message.estimate))))
            continue
        spoken.append(place)
        each = next(told)
        size = _size(speaking(message.estimate))
        turns.append(Turn(raw, role, each.identity, size, each.calls, each.answers))
    return History(turns, spoken, line.chain)


def unsized(line: Line) -> History:
    """The same where nothing is to be planned."""
    return history_of(line, _nothing, _nothing)


def _nothing(_: Estimate) -> float:
    return 0.0


def _size(tokens: float) -> int:
    return max(1, round(tokens))


def raw_of(parts: Parts, place: int) -> bytes:
    """A message in the client's own bytes."""
    return parts.array[_start(parts, place) : parts.ends[place]].lstrip(b" \t\r\n,")


def _start(parts: Parts, place: int) -> int:
    return parts.ends[place - 1] if place else 1  # after the bracket


def last_spoken(parts: Parts, count: int) -> list[int]:
    """Where the last so many spoken messages stand."""
    places: list[int] = []
    for place in range(len(parts.messages) - 1, -1, -1):
        if len(places) == count:
            break
        if parts.messages[place].role not in OUTSIDE_THE_CHAIN:
            places.append(place)
    return places[::-1]
