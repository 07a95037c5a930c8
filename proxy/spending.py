"""What summaries have cost each caller today. A bound for accidents, not an account: workers add up their own
and see what the others had spent when they last looked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proxy.ports import COMMON, Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

_CALLERS = 4096
_DAY = 24 * 3600.0


@dataclass(slots=True)
class _Spent:
    day: int
    tokens: int


class Spending:
    def __init__(self, store: LateWriter, most: int | None, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._most = most
        self._clock = clock
        self._spent: Recent[bytes, _Spent] = Recent(_CALLERS)

    def is_spent(self, tenant: bytes) -> bool:
        spent = self._today(tenant)
        return self._most is not None and spent is not None and spent.tokens >= self._most

    def spend(self, tenant: bytes, tokens: int) -> None:
        spent = self._today(tenant) or _Spent(self._day(), 0)
        spent.tokens += tokens
        self._spent.put(tenant, spent)
        value = msgspec.msgpack.encode(spent.tokens)
        self._store.later(tenant, Space.LANES, {_key(spent.day): value}, ttl=2 * _DAY)

    async def recall(self, tenant: bytes) -> None:
        """What was spent before this process began, or by others."""
        if self._most is None or self._today(tenant) is not None:
            return
        key = _key(self._day())
        stored = (await self._store.get(tenant, Space.LANES, [key])).get(key)
        try:
            tokens = msgspec.msgpack.decode(stored, type=int) if stored is not None else 0
        except msgspec.MsgspecError:
            tokens = 0
        if self._today(tenant) is None:
            self._spent.put(tenant, _Spent(self._day(), tokens))

    def _today(self, tenant: bytes) -> _Spent | None:
        spent = self._spent.get(tenant)
        return spent if spent is not None and spent.day == self._day() else None

    def _day(self) -> int:
        return int(self._clock() // _DAY)


def _key(day: int) -> bytes:
    return COMMON + b"summary tokens of day %d" % day
