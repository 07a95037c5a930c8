"""The folds of callers' histories: in memory for what is in use, in the store for other workers and later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proxy.fold.assemble import belongs
from proxy.fold.history import History
from proxy.fold.record import Fold, address_of, from_bytes, to_bytes
from proxy.ports import Space, Store
from proxy.recent import Recent
from proxy.store.writing import LateWriter

# A summary is held in three forms, some 30 KB together.
REMEMBERED = 1024
# Of a history's chain, from its end: folds leave a short tail, so the deepest one is never far from there.
ASKED_FOR = 4096
_RENEWED_EVERY = 24 * 3600.0


class Folds:
    def __init__(self, store: Store, later: LateWriter, *, ttl: Callable[[], float]) -> None:
        self._store = store
        self._later = later
        self._ttl = ttl
        self._renewed: Recent[bytes, float] = Recent(REMEMBERED)
        self._remembered: Recent[bytes, Fold] = Recent(REMEMBERED)

    async def known(self, tenant: bytes, history: History, beside: bytes | None = None) -> list[Fold]:
        """All that belong to this history, and to what stands beside it. What is not remembered is asked of
        the store every time: another worker may have made it a moment ago.
        """
        found = await self._found(tenant, _addresses(history.chain[1:][-ASKED_FOR:], beside))
        return [fold for fold in found if belongs(fold, history)]

    def at_hand(self, tenant: bytes, prefix: bytes | None, beside: bytes | None = None) -> Fold | None:
        """Without asking the store."""
        for address in _addresses([prefix], beside) if prefix is not None else ():
            if (fold := self._remembered.get(tenant + address)) is not None:
                return fold
        return None

    async def at(self, tenant: bytes, prefix: bytes, beside: bytes | None = None) -> Fold | None:
        """A fold of just this prefix, if another has made it."""
        return next(iter(await self._found(tenant, _addresses([prefix], beside))), None)

    def used(self, tenant: bytes, fold: Fold, now: float) -> None:
        """What is in use is kept: its time begins anew, written once in a while."""
        key = tenant + fold.address
        renewed = self._renewed.get(key)
        if renewed is None or now - renewed >= _RENEWED_EVERY:
            self._renewed.put(key, now)
            if renewed is not None or now - fold.created >= _RENEWED_EVERY:
                self._later.later(tenant, Space.FOLDS, {fold.address: to_bytes(fold)}, ttl=self._ttl())

    async def keep(self, tenant: bytes, fold: Fold) -> Fold:
        """The fold that is used for this prefix from now on: this one, or another's that was there before."""
        stored = await self._store.put_new(tenant, Space.FOLDS, fold.address, to_bytes(fold), ttl=self._ttl())
        winner = _fold_of(fold.address, stored) or fold
        self._remembered.put(tenant + fold.address, winner)
        return winner

    async def _found(self, tenant: bytes, addresses: Sequence[bytes]) -> Iterable[Fold]:
        found = {name: fold for name in addresses if (fold := self._remembered.get(tenant + name))}
        missing = [name for name in addresses if name not in found]
        stored = await self._store.get(tenant, Space.FOLDS, missing) if missing else {}
        for name, value in stored.items():
            if (fold := _fold_of(name, value)) is not None:
                found[name] = fold
                self._remembered.put(tenant + name, fold)
        return found.values()


def _addresses(prefixes: Sequence[bytes], beside: bytes | None) -> list[bytes]:
    besides = (None,) if beside is None else (None, beside)
    return [address_of(prefix, each) for each in besides for prefix in prefixes]


def _fold_of(address: bytes, stored: bytes) -> Fold | None:
    """A record that lies under a name that is not its own was never written by us."""
    fold = from_bytes(stored)
    return fold if fold is not None and fold.address == address else None
