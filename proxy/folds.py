"""The folds of callers' histories: in memory for what is in use, in the store for other workers and later."""

from __future__ import annotations

from collections.abc import Callable

from proxy.fold.assemble import belongs
from proxy.fold.history import History
from proxy.fold.record import Fold, from_bytes, to_bytes
from proxy.ports import Space, Store
from proxy.recent import Recent
from proxy.store.writing import LateWriter

REMEMBERED = 4096
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

    async def known(self, tenant: bytes, history: History) -> list[Fold]:
        """All that belong to this history. What is not remembered is asked of the store every time: another
        worker may have made it a moment ago.
        """
        values = history.chain[1:][-ASKED_FOR:]
        found = {value: fold for value in values if (fold := self._remembered.get(tenant + value))}
        missing = [value for value in values if value not in found]
        for value, stored in (await self._store.get(tenant, Space.FOLDS, missing)).items():
            if (fold := _fold_of(value, stored)) is not None:
                found[value] = fold
                self._remembered.put(tenant + value, fold)
        return [fold for fold in found.values() if belongs(fold, history)]

    def at_hand(self, tenant: bytes, prefix: bytes | None) -> Fold | None:
        """Without asking the store."""
        return self._remembered.get(tenant + prefix) if prefix is not None else None

    async def at(self, tenant: bytes, prefix: bytes) -> Fold | None:
        """The fold of just this prefix, if another has made it."""
        if (fold := self._remembered.get(tenant + prefix)) is not None:
            return fold
        stored = (await self._store.get(tenant, Space.FOLDS, [prefix])).get(prefix)
        fold = _fold_of(prefix, stored) if stored is not None else None
        if fold is not None:
            self._remembered.put(tenant + prefix, fold)
        return fold

    def used(self, tenant: bytes, fold: Fold, now: float) -> None:
        """What is in use is kept: its time begins anew, written once in a while."""
        key = tenant + fold.prefix
        renewed = self._renewed.get(key)
        if renewed is None or now - renewed >= _RENEWED_EVERY:
            self._renewed.put(key, now)
            if renewed is not None or now - fold.created >= _RENEWED_EVERY:
                self._later.later(tenant, Space.FOLDS, {fold.prefix: to_bytes(fold)}, ttl=self._ttl())

    async def keep(self, tenant: bytes, fold: Fold) -> Fold:
        """The fold that is used for this prefix from now on: this one, or another's that was there before."""
        stored = await self._store.put_new(tenant, Space.FOLDS, fold.prefix, to_bytes(fold), ttl=self._ttl())
        winner = _fold_of(fold.prefix, stored) or fold
        self._remembered.put(tenant + fold.prefix, winner)
        return winner


def _fold_of(prefix: bytes, stored: bytes) -> Fold | None:
    """A record that lies under a name that is not its own was never written by us."""
    fold = from_bytes(stored)
    return fold if fold is not None and fold.prefix == prefix else None
