"""From a measured request to its history: what each message says is read once, however often it is resent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from proxy.counting.estimate import Estimate
from proxy.counting.prompt import OUTSIDE_THE_CHAIN
from proxy.counting.recollection import Measured
from proxy.fold.history import History, Turn, beginning, linked
from proxy.fold.identity import Said, said
from proxy.recent import Recent

REMEMBERED_LINES = 512
REMEMBERED_MESSAGES = 32 * 1024
# How far back from its end a history is compared with those that are remembered: clients add a few messages.
_REACH = 64
# Below this a thread costs more than the reading.
_INLINE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """The spoken messages of a request, in their order: what each says, and the chain that they make."""

    measured: Measured
    said: Sequence[Said]
    chain: Sequence[bytes]

    @property
    def length(self) -> int:
        return len(self.said)


@dataclass(frozen=True, slots=True)
class _Told:
    """What is remembered of a line: no byte of what was said."""

    said: Sequence[Said] = ()
    chain: Sequence[bytes] = ()


class Histories:
    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._lines: Recent[bytes, _Told] = Recent(REMEMBERED_LINES)
        self._said: Recent[bytes, Said] = Recent(REMEMBERED_MESSAGES)

    async def line(self, tenant: bytes, measured: Measured) -> Line | None:
        """None where the messages cannot be told apart: such a request is forwarded as it came."""
        if len(measured.ends) != len(measured.messages) or not measured.messages:
            return None
        known, length = self._longest_known(measured.prompt.chain)
        new = last_spoken(measured, measured.prompt.length - length)
        told = _extended(tenant, known, length, await self._said_in(tenant, measured, new))
        self._lines.put(measured.prompt.chain[-1], told)
        return Line(measured, told.said, told.chain)

    def _longest_known(self, exact: Sequence[bytes]) -> tuple[_Told, int]:
        """The two chains have the same length: one names what is said, the other every byte of it."""
        for length in range(len(exact) - 1, max(0, len(exact) - 1 - _REACH), -1):
            if (told := self._lines.get(exact[length])) is not None:
                return told, length
        return _Told(), 0

    async def _said_in(self, tenant: bytes, measured: Measured, places: Sequence[int]) -> list[Said]:
        digests = [measured.messages[place].digest for place in places]
        found = {digest: each for digest in digests if (each := self._said.get(digest)) is not None}
        unread = {
            digest: raw_of(measured, place)
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


def _extended(tenant: bytes, known: _Told, length: int, added: Sequence[Said]) -> _Told:
    chain = [*known.chain[: length + 1]] or [beginning(tenant)]
    for each in added:
        chain.append(linked(chain[-1], each.identity))
    return _Told([*known.said[:length], *added], chain)


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


def raw_of(measured: Measured, place: int) -> bytes:
    """A message in the client's own bytes."""
    return measured.array[_start(measured, place) : measured.ends[place]].lstrip(b" \t\r\n,")


def _start(measured: Measured, place: int) -> int:
    return measured.ends[place - 1] if place else 1  # after the bracket


def last_spoken(measured: Measured, count: int) -> list[int]:
    """Where the last so many spoken messages stand."""
    places: list[int] = []
    for place in range(len(measured.messages) - 1, -1, -1):
        if len(places) == count:
            break
        if measured.messages[place].role not in OUTSIDE_THE_CHAIN:
            places.append(place)
    return places[::-1]
