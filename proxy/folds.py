"""The folds of callers' histories: in memory for what is in use, in the store for other workers and later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from proxy.fold.assemble import belongs
from proxy.fold.history import History, home_in
from proxy.fold.record import Fold, address_of, from_bytes, to_bytes
from proxy.ports import HOME_SIZE, Space, Store
from proxy.recent import Recent
from proxy.store.writing import LateWriter

# A summary is held in three forms, some 30 KB together.
REMEMBERED = 1024
# Of a history's chain, from its end: folds leave a short tail, so the deepest one is never far from there.
ASKED_FOR = 4096
# And before anything is known of the request: what others have made since this process has seen it last.
NEWEST = 64
_RENEWED_EVERY = 24 * 3600.0
# A store may lose what it had, or be flushed, without anybody noticing: what is in use is put there again.
_CONFIRMED_EVERY = 60.0


class Folds:
    def __init__(self, store: Store, later: LateWriter, *, ttl: Callable[[], float]) -> None:
        self._store = store
        self._later = later
        self._ttl = ttl
        self._renewed: Recent[bytes, float] = Recent(REMEMBERED)
        self._confirmed: Recent[bytes, float] = Recent(REMEMBERED)  # when each was last known to be there
        self._remembered: Recent[bytes, Fold] = Recent(REMEMBERED)
        self._absences = 0  # of the store
        self._settled: Recent[bytes, int] = Recent(REMEMBERED)  # after which absence each was in the store
        # Ends of histories of which all folds were looked for.
        self._searched: Recent[bytes, bool] = Recent(16 * REMEMBERED)

    def recalling(
        self, tenant: bytes, chain: Sequence[bytes], beside: bytes | None = None
    ) -> Awaitable[None] | None:
        """Look for the newest folds of a history, where there may be some that are not remembered."""
        addresses = _addresses(chain[1:][-NEWEST:], beside)
        missing = [address for address in addresses if tenant + address not in self._remembered]
        return self._recall(tenant, chain, missing) if missing else None

    async def known(
        self,
        tenant: bytes,
        history: History,
        beside: bytes | None = None,
        *,
        recalled: bool = False,
        older: bool = True,
    ) -> list[Fold]:
        """All that belong to this history, and to what stands beside it. What is not remembered is asked of
        the store every time: another worker may have made it meanwhile. Not so the newest, where they were
        `recalled` just now, and then the `older` ones only where they are wanted.
        """
        since = self._searched_up_to(tenant, history.chain) if older or not recalled else len(history.chain)
        end = max(0, len(history.chain) - NEWEST) if recalled else len(history.chain)
        unasked = history.chain[max(1, since - NEWEST) : end]
        missing = [
            each for each in _addresses(unasked[-ASKED_FOR:], beside) if tenant + each not in self._remembered
        ]
        if missing:
            await self._recall(tenant, history.chain, missing)
        if older or not recalled:
            self._searched.put(tenant + history.chain[-1], True)
        addresses = _addresses(history.chain[1:][-ASKED_FOR:], beside)
        found = (self._remembered.get(tenant + address) for address in addresses)
        return [fold for fold in found if fold is not None and belongs(fold, history)]

    def at_hand(self, tenant: bytes, prefix: bytes | None, beside: bytes | None = None) -> Fold | None:
        """Without asking the store."""
        for address in _addresses([prefix], beside) if prefix is not None else ():
            if (fold := self._remembered.get(tenant + address)) is not None:
                return fold
        return None

    async def at(self, tenant: bytes, home: bytes, prefix: bytes, beside: bytes | None = None) -> Fold | None:
        """A fold of just this prefix, if another has made it."""
        if (fold := self.at_hand(tenant, prefix, beside)) is None:
            await self._ask(tenant, home, _addresses([prefix], beside))
            fold = self.at_hand(tenant, prefix, beside)
        return fold

    def used(self, tenant: bytes, fold: Fold, now: float) -> None:
        """What is in use is kept: its time begins anew, written once in a while."""
        key = tenant + fold.address
        confirmed = self._confirmed.get(key)
        is_old = confirmed is not None and now - confirmed >= _CONFIRMED_EVERY
        if is_old or (self._settled.get(key) or 0) < self._absences:
            self._settle(tenant, fold)
        if is_old or confirmed is None:
            self._confirmed.put(key, now)
        renewed = self._renewed.get(key)
        if renewed is None or now - renewed >= _RENEWED_EVERY:
            self._renewed.put(key, now)
            if renewed is not None or now - fold.created >= _RENEWED_EVERY:
                self._later.later(tenant, Space.FOLDS, {_key(fold): to_bytes(fold)}, ttl=self._ttl())

    async def keep(self, tenant: bytes, fold: Fold) -> Fold:
        """The fold that is used for this prefix from now on: this one, or another's that was there before."""
        if not self._later.writes_for(tenant):
            return await self._keep_when_accepted(tenant, fold)
        stored = await self._store.put_new(tenant, Space.FOLDS, _key(fold), to_bytes(fold), ttl=self._ttl())
        winner = _fold_of(fold.address, stored) or fold
        self._settled.put(tenant + fold.address, self._absences)
        self._remembered.put(tenant + fold.address, winner)
        return winner

    async def _keep_when_accepted(self, tenant: bytes, fold: Fold) -> Fold:
        if (winner := await self.at(tenant, fold.home, fold.prefix, fold.beside)) is not None:
            return winner
        self._remembered.put(tenant + fold.address, fold)
        self._settle(tenant, fold)
        return fold

    def store_is_back(self) -> None:
        """Perhaps without what it kept: what is in use here is put there again, for all others."""
        self._absences += 1

    def _settle(self, tenant: bytes, fold: Fold) -> None:
        """Where others have made another one meanwhile, it is used from now on here too."""

        def adopt(stored: bytes) -> None:
            if (winner := _fold_of(fold.address, stored)) is not None:
                self._remembered.put(tenant + fold.address, winner)

        self._settled.put(tenant + fold.address, self._absences)
        value, ttl = to_bytes(fold), self._ttl()
        self._later.settle(tenant, Space.FOLDS, _key(fold), value, ttl=ttl, then=adopt)

    def _searched_up_to(self, tenant: bytes, chain: Sequence[bytes]) -> int:
        lengths = range(len(chain) - 1, max(0, len(chain) - 1 - NEWEST), -1)
        return next((length for length in lengths if tenant + chain[length] in self._searched), 0)

    async def _recall(self, tenant: bytes, chain: Sequence[bytes], addresses: Sequence[bytes]) -> None:
        await self._ask(tenant, home_in(chain), addresses)

    async def _ask(self, tenant: bytes, home: bytes, addresses: Sequence[bytes]) -> None:
        stored = await self._store.get(tenant, Space.FOLDS, [home + address for address in addresses])
        for key, value in stored.items():
            address = key[HOME_SIZE:]
            if (fold := _fold_of(address, value)) is not None:
                self._remembered.put(tenant + address, fold)


def _key(fold: Fold) -> bytes:
    return fold.home + fold.address


def _addresses(prefixes: Sequence[bytes], beside: bytes | None) -> list[bytes]:
    besides = (None,) if beside is None else (None, beside)
    return [address_of(prefix, each) for each in besides for prefix in prefixes]


def _fold_of(address: bytes, stored: bytes) -> Fold | None:
    """A record that lies under a name that is not its own was never written by us."""
    fold = from_bytes(stored)
    return fold if fold is not None and fold.address == address else None
