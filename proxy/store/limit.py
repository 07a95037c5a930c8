"""A time limit for somebody else, fair when it is we who were held up."""

from __future__ import annotations

import asyncio
from time import monotonic
from types import TracebackType

# A timer that goes off later than this was kept waiting by other work of the event loop. An answer may have
# come meanwhile that nobody has had the time to look at: timers go before what was received.
_HELD_UP = 0.005
# Then so much of the limit is given once more, so often at most.
_ONCE_MORE = 0.1
_MOST_TIMES = 5


class Limit:
    """`async with Limit(seconds)` raises TimeoutError like `asyncio.timeout`."""

    __slots__ = ("_due", "_handle", "_once_more", "_seconds", "_timeout", "_times")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._once_more = seconds * _ONCE_MORE
        self._times = 0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        self._look_in(self._seconds)
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _look_in(self, seconds: float) -> None:
        self._due = monotonic() + seconds
        self._handle = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if monotonic() - self._due > _HELD_UP and self._times < _MOST_TIMES:
            self._times += 1
            self._look_in(self._once_more)
        else:
            self._timeout.reschedule(asyncio.get_running_loop().time())
