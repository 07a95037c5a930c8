"""All that lies in a shared store, found by its names: not for the way of a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from proxy.ports import HOMED, Space
from proxy.store import envelope
from proxy.store.entries import Entry
from proxy.store.pipelined import Pipelined
from proxy.store.redis_asking import Command
from proxy.store.redis_keys import ALL, Named, bound, named
from proxy.store.redis_scripts import DROP

_NAMES = 500  # looked at by the server in one step
_VALUES = 64  # names whose values are on their way at one time; a message may be large


class _Found(NamedTuple):
    """What lies under one name: a hash's fields, or one value under no field."""

    name: bytes
    where: Named
    fields: Mapping[bytes, bytes]


class RedisListing:
    def __init__(self, client: Any, server: Pipelined, now: Callable[[], int], ahead: float) -> None:
        self._client = client
        self._server = server
        self._now = now
        self._ahead = ahead  # seconds that the server's clock is ahead of ours

    async def entries(self) -> AsyncIterator[Entry]:
        async for names in self._pages():
            for found in await self._found(names):
                for entry in _entries(found, self._now(), self._ahead):
                    yield entry

    async def clear(self, spaces: Collection[Space]) -> int:
        everything = {*spaces} == {*Space}
        gone = 0
        async for names in self._pages():
            ours = [name for name in names if _is_among(name, spaces)]
            gone += sum(await self._sizes(ours))
            await self._asked([("UNLINK", name) for name in (names if everything else ours)])
        return gone

    async def clear_expired(self, spaces: Collection[Space]) -> int:
        """Keys of their own are the server's to remove; the fields of a hash live as long as it does."""
        gone = 0
        async for names in self._pages():
            hashes = [name for name in names if _is_among(name, {*spaces} & HOMED)]
            for found in await self._found(hashes):
                over = {
                    field: value
                    for field, value in found.fields.items()
                    if envelope.is_over(value, self._now())
                }
                await self._server.run_all(
                    DROP, [(found.name, value, field) for field, value in over.items()]
                )
                gone += len(over)
        return gone

    async def _pages(self) -> AsyncIterator[list[bytes]]:
        page: list[bytes] = []
        async for name in self._client.scan_iter(match=ALL, count=_NAMES):
            page.append(name)
            if len(page) == _VALUES:
                yield page
                page = []
        yield page

    async def _found(self, names: Sequence[bytes]) -> list[_Found]:
        known = [(name, where) for name in names if (where := named(name)) is not None]
        answers = await self._asked(
            [("HGETALL" if where.space in HOMED else "GET", name) for name, where in known]
        )
        return [
            _Found(name, where, _pairs(answer) if where.space in HOMED else {b"": answer})
            for (name, where), answer in zip(known, answers, strict=True)
            if answer is not None
        ]

    async def _sizes(self, names: Sequence[bytes]) -> list[int]:
        hashes = [name for name in names if (where := named(name)) is not None and where.space in HOMED]
        lengths = await self._asked([("HLEN", name) for name in hashes])
        return [length or 0 for length in lengths] + [1] * (len(names) - len(hashes))

    async def _asked(self, commands: Sequence[Command]) -> list[Any]:
        """None where somebody has put something of another kind in our place."""
        answers = await self._server.ask(commands) if commands else []
        for answer in answers:
            if isinstance(answer, Exception) and not is_of_another_kind(answer):
                raise answer
        return [None if isinstance(answer, Exception) else answer for answer in answers]


def is_of_another_kind(answer: Any) -> bool:
    """A key of ours that somebody has put something else under."""
    return isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE")


def _is_among(name: bytes, spaces: Collection[Space]) -> bool:
    where = named(name)
    return where is not None and where.space in spaces


def _entries(found: _Found, now: int, ahead: float) -> list[Entry]:
    tenant, space, home = found.where
    if space is Space.CLAIMS:
        return []
    opened = {
        field: envelope.opened(bound(tenant, space, home + field), stored, now)
        for field, stored in found.fields.items()
    }
    return [
        Entry(tenant, space, home + field, value, _until(found.fields[field], ahead))
        for field, value in opened.items()
        if value is not None
    ]


def _until(stored: bytes, ahead: float) -> float | None:
    expires = envelope.expires_at(stored)
    return None if expires is None else inf if expires >= envelope.NEVER else expires / 1000 - ahead


def _pairs(answer: Any) -> Mapping[bytes, bytes]:
    if isinstance(answer, dict):
        return answer
    return dict(zip(answer[::2], answer[1::2], strict=True))
