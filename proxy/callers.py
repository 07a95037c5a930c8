"""Whom the upstream answers: nobody else leaves anything in the store, or anyone could fill it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.ports import NOBODY
from proxy.recent import Recent

REMEMBERED = 64 * 1024
# The upstream does not know the caller.
REFUSED = (401, 403)


@dataclass(slots=True)
class _Waiting:
    acts: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0


class Callers:
    """A request is prepared before anybody knows whether the upstream takes its caller: what there is to keep
    of it waits until then.
    """

    def __init__(self, *, most_bytes: int = 8 * 1024**2) -> None:
        self._most_bytes = most_bytes
        self._accepted: Recent[bytes, bool] = Recent(REMEMBERED)
        self._waiting: OrderedDict[bytes, _Waiting] = OrderedDict()
        self._waiting_bytes = 0

    def know(self, tenant: bytes) -> bool:
        """As far back as this process remembers."""
        return tenant == NOBODY or self._accepted.get(tenant) is not None

    def answered(self, tenant: bytes, status: int, *, well: bool) -> None:
        """Who has been accepted once stays so: not every model is everybody's."""
        if well and 200 <= status < 300:
            self.accept(tenant)
        elif status in REFUSED:
            self._taken(tenant)

    def accept(self, tenant: bytes) -> None:
        self._accepted.put(tenant, True)
        if (waiting := self._taken(tenant)) is not None:
            for act in waiting.acts:
                act()

    def when_accepted(self, tenant: bytes, act: Callable[[], None], size: int) -> None:
        """Of those who wait too long, or for too much, nothing is kept."""
        waiting = self._waiting.setdefault(tenant, _Waiting())
        waiting.acts.append(act)
        waiting.size += size
        self._waiting_bytes += size
        while self._waiting_bytes > self._most_bytes:
            self._taken(next(iter(self._waiting)))

    def _taken(self, tenant: bytes) -> _Waiting | None:
        waiting = self._waiting.pop(tenant, None)
        if waiting is not None:
            self._waiting_bytes -= waiting.size
        return waiting
