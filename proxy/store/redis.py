"""A store in Redis or Valkey, shared by all replicas that use it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from proxy.ports import HOMED, Space
from proxy.settings.redis_address import Address
from proxy.store import envelope
from proxy.store.entries import Entry
from proxy.store.pipelined import Pipelined
from proxy.store.redis_asking import TROUBLE, Command
from proxy.store.redis_clients import Clients, clients_for
from proxy.store.redis_keys import bound, by_key, field_of, place_of
from proxy.store.redis_listing import RedisListing, is_of_another_kind
from proxy.store.redis_outage import outage_from
from proxy.store.redis_scripts import CLAIM, DROP, PUT_FIELDS, PUT_NEW, PUT_VALUE, RELEASE
from proxy.tasks import Tasks

# Connections of one process to one server: what is asked for at once goes over one of them.
_CONNECTIONS = 16
# Whoever asks has a limit of its own, which knows when it is this process that is late. So the connections'
# is longer: it is for what was given up.
_SPARE = 3
_PATIENCE = 10.0  # seconds for what is large; whoever waits for it has a limit of its own
_LONGEST_CLAIM = 3_600_000  # milliseconds; what says more is not one
_LONGEST = 10**14  # milliseconds that a server can reckon with
_MOST_KEYS = 1_000  # in one command


def _unheard(_count: int) -> None:
    pass


class RedisStore:
    """Times are the server's: what a replica's own clock says is corrected when the store is opened."""

    def __init__(
        self,
        clients: Clients,
        patient: Clients,
        tasks: Tasks,
        *,
        ahead: float = 0.0,
        clock: Callable[[], float] = time.time,
        on_foreign: Callable[[int], None] = _unheard,
    ) -> None:
        self._clients = clients
        self._patient = patient
        self._server = Pipelined(clients.asking, patient.asking, tasks)
        self._listing = RedisListing(clients.asked, self._server, self._now, ahead)
        self._ahead = ahead  # seconds that the server's clock is ahead of ours
        self._clock = clock
        self._on_foreign = on_foreign

    @classmethod
    async def open(
        cls,
        address: Address,
        tasks: Tasks,
        *,
        timeout: float,
        clock: Callable[[], float] = time.time,
        on_foreign: Callable[[int], None] = _unheard,
    ) -> RedisStore:
        given_up = _SPARE * timeout
        clients, patient = (
            clients_for(address, timeout=given_up, patience=patience, connections=_CONNECTIONS)
            for patience in (given_up, max(given_up, _PATIENCE))
        )
        try:
            with _trouble_told():
                ahead = await _servers_time(clients.asked) - clock()
        except BaseException:
            await clients.close()
            raise
        return cls(clients, patient, tasks, ahead=ahead, clock=clock, on_foreign=on_foreign)

    @property
    def client(self) -> Any:
        return self._clients.asked

    @property
    def ahead(self) -> float:
        return self._ahead

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        now, found = self._now(), dict[bytes, bytes]()
        foreign = 0
        for key, stored in await self._stored(tenant, space, keys):
            value = envelope.opened(bound(tenant, space, key), stored, now)
            if value is not None:
                found[key] = value
            elif not envelope.is_over(stored, now):
                foreign += 1
        if foreign:
            self._on_foreign(foreign)
        return found

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        if not values:
            return
        now, (expires, lasting) = self._now(), self._until(ttl)
        sealed = {
            key: envelope.sealed(bound(tenant, space, key), value, expires) for key, value in values.items()
        }
        with _trouble_told():
            if space in HOMED:
                calls = [
                    (place, lasting, now, *(each for key in keys for each in (field_of(key), sealed[key])))
                    for place, keys in by_key(tenant, space, values).items()
                ]
                await self._server.run_all(PUT_FIELDS, calls)
            else:
                places = ((place_of(tenant, space, key).key, key) for key in values)
                calls = [(place, lasting, sealed[key]) for place, key in places]
                await self._server.run_all(PUT_VALUE, calls)

    async def put_new(
        self, tenant: bytes, space: Space, key: bytes, value: bytes, *, ttl: float | None
    ) -> bytes:
        expires, lasting = self._until(ttl)
        place, field = place_of(tenant, space, key)
        where = () if field is None else (field,)
        name = bound(tenant, space, key)
        said = (envelope.header(expires), envelope.body(name, value), self._now())
        with _trouble_told():
            while True:
                until = envelope.NEVER if expires is None else expires
                stored = await self._server.run(PUT_NEW, place, *said, until, lasting, *where)
                if (winner := envelope.opened(name, stored, 0)) is not None:
                    return winner
                # It looks like one of ours and is not: nobody can use it, so it makes way.
                self._on_foreign(1)
                await self._server.run(DROP, place, stored, *where)

    async def delete(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> None:
        places = [place_of(tenant, space, key) for key in keys]
        commands: list[Command] = [
            ("DEL", place.key) if place.field is None else ("HDEL", place.key, place.field)
            for place in places
        ]
        with _trouble_told():
            for answer in await self._server.ask(commands) if commands else ():
                if isinstance(answer, Exception) and not is_of_another_kind(answer):
                    raise answer

    async def claim(self, tenant: bytes, key: bytes, holder: bytes, *, ttl: float) -> bool:
        expires, lasting = self._until(ttl)
        said = (envelope.header(expires), envelope.body(bound(tenant, Space.CLAIMS, key), holder))
        place = place_of(tenant, Space.CLAIMS, key).key
        with _trouble_told():
            return bool(await self._server.run(CLAIM, place, *said, self._now(), lasting, _LONGEST_CLAIM))

    async def release(self, tenant: bytes, key: bytes, holder: bytes) -> None:
        with _trouble_told():
            place = place_of(tenant, Space.CLAIMS, key).key
            await self._server.run(RELEASE, place, envelope.body(bound(tenant, Space.CLAIMS, key), holder))

    async def entries(self) -> AsyncIterator[Entry]:
        with _trouble_told():
            async for entry in self._listing.entries():
                yield entry

    async def clear(self, spaces: Collection[Space], *, only_expired: bool) -> int:
        with _trouble_told():
            clear = self._listing.clear_expired if only_expired else self._listing.clear
            return await clear(spaces)

    async def close(self) -> None:
        await self._server.close()
        await self._clients.close()
        await self._patient.close()

    async def _stored(
        self, tenant: bytes, space: Space, keys: Sequence[bytes]
    ) -> Iterator[tuple[bytes, bytes]]:
        commands: list[Command] = []
        asked: list[Sequence[bytes]] = []
        if space in HOMED:
            for place, homed in by_key(tenant, space, keys).items():
                for start in range(0, len(homed), _MOST_KEYS):
                    asked.append(homed[start : start + _MOST_KEYS])
                    commands.append(("HMGET", place, *map(field_of, asked[-1])))
        else:
            asked = [(key,) for key in keys]
            commands = [("GET", place_of(tenant, space, key).key) for key in keys]
        with _trouble_told():
            answers = await self._server.ask(commands) if commands else []
            return self._told(asked, answers)

    def _told(
        self, asked: Sequence[Sequence[bytes]], answers: Sequence[Any]
    ) -> Iterator[tuple[bytes, bytes]]:
        pairs: list[tuple[bytes, bytes]] = []
        for keys, answer in zip(asked, answers, strict=True):
            if is_of_another_kind(answer):
                self._on_foreign(1)
                continue
            if isinstance(answer, Exception):
                raise answer
            stored = answer if isinstance(answer, list) else [answer]
            pairs += [(key, each) for key, each in zip(keys, stored, strict=True) if each is not None]
        return iter(pairs)

    def _now(self) -> int:
        return round((self._clock() + self._ahead) * 1000)

    def _until(self, ttl: float | None) -> tuple[int | None, int]:
        """When it ends, None for good; and for how many milliseconds the server keeps it, -1 without end."""
        if ttl is None:
            return None, -1
        milliseconds = ttl * 1000
        if milliseconds >= _LONGEST:
            return envelope.NEVER, -1
        return self._now() + round(milliseconds), max(1, round(milliseconds))


@contextmanager
def _trouble_told() -> Iterator[None]:
    try:
        yield
    except TROUBLE as error:
        raise outage_from(error) from None  # its own text may quote a command


async def _servers_time(client: Any) -> float:
    told = await client.time()
    seconds, micros = next(iter(told.values())) if isinstance(told, dict) else told
    return int(seconds) + int(micros) / 1e6
