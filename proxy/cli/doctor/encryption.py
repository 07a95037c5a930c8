"""Do the keys fit what the store holds?"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from proxy.cli.doctor import round_trip
from proxy.cli.doctor.finding import Finding, fails, passes, warns
from proxy.ports import Space, Store, StoreUnavailable
from proxy.settings import Settings
from proxy.store import is_sealed as is_sealed_store
from proxy.store import open_primary, sqlite_path
from proxy.store.entries import Entry, Listed
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.mark import is_sealed
from proxy.store.sealed import SealedStore
from proxy.store.slots import SECRET, Slot
from proxy.tasks import Tasks

_NAME = "encryption"
_AS_BEFORE = "give encryption.keys as before"
_LOOKED_AT = 50  # values, of as many as there may be

# How many values open (None), and how many do not, by the reason.
Opened = Mapping[Unreadable | None, int]


async def check(settings: Settings, tasks: Tasks) -> list[Finding]:
    try:
        if not settings.encryption.by_id and await is_sealed_store(settings.store_url, tasks):
            return [fails(_NAME, "off, but the store is encrypted: serve does not start on it", _AS_BEFORE)]
        opened = await _looked_into(settings, tasks)
    except (StoreUnavailable, TimeoutError):
        opened = {}  # told by the check of the store
    return [judged([*settings.encryption.by_id], opened)]


def judged(ids: Sequence[str], opened: Opened) -> Finding:
    total = sum(opened.values())
    lost = total - opened.get(None, 0)
    if not ids:
        return _without_keys(lost, total)
    keys = f"{ids[0]} seals" + (f", {', '.join(ids[1:])} opens too" if ids[1:] else "")
    if not lost:
        return passes(_NAME, f"{keys}; all {total} values looked at open" if total else keys)
    found = f"{keys}, but {lost} of {total} values looked at count as missing"
    if lost == opened.get(Unreadable.PLAIN, 0):
        return warns(_NAME, f"{found}: they are in clear, from before", "a fresh store would be better")
    hint = "put the key that sealed them behind the first one in encryption.keys"
    return warns(_NAME, f"{found}: they do not open", hint)


def _without_keys(sealed: int, total: int) -> Finding:
    if sealed:
        found = f"off, but {sealed} of {total} values looked at are encrypted and count as missing"
        return warns(_NAME, found, _AS_BEFORE)
    return passes(_NAME, "off: what is stored is not encrypted")


async def _looked_into(settings: Settings, tasks: Tasks) -> Opened:
    """Nothing is changed."""
    if not await _may_be_opened(settings.store_url):
        return {}
    keys = settings.encryption.by_id
    keyring = Keyring(keys) if keys else None
    store = await open_primary(settings.store_url, tasks, time_limit=round_trip.PATIENCE)
    try:
        # Where the settings have a secret, nobody asks for the store's.
        secret = await _secret(store, keyring) if settings.secret is None else []
        return Counter([*secret, *[_why_not(keyring, slot, value) async for slot, value in _some(store)]])
    finally:
        await round_trip.let_go(store)


async def _may_be_opened(url: str) -> bool:
    if not url.startswith("sqlite:"):
        return True
    from proxy.cli.doctor.sqlite_store import is_as_today

    return await is_as_today(sqlite_path(url))


async def _secret(store: Store, keyring: Keyring | None) -> list[Unreadable | None]:
    """It is kept once for every key, and one that opens is enough."""
    tenant, space, key = SECRET
    found = (await store.get(tenant, space, [key])).get(key)
    if found is None:
        return []
    if keyring is not None and await SealedStore(store, keyring).get(tenant, space, [key]):
        return [None]
    return [_why_not(keyring, SECRET, found)]


async def _some(store: Store) -> AsyncIterator[tuple[Slot, bytes]]:
    """Of the callers' values."""
    if not isinstance(store, Listed):
        return
    seen = 0
    async with aclosing(cast(AsyncGenerator[Entry, None], store.entries())) as entries:
        try:
            async for entry in entries:
                if entry.space is not Space.SERVER:
                    seen += 1
                    yield entry.slot, entry.value
                if seen == _LOOKED_AT:
                    return
        except StoreUnavailable:
            return  # one of another package that cannot list what it keeps: the secret has to do


def _why_not(keyring: Keyring | None, slot: Slot, value: bytes) -> Unreadable | None:
    """Why it cannot be opened; None if it can."""
    if keyring is None:
        return Unreadable.FOREIGN if is_sealed(value) else None
    opened = keyring.open(slot, value)
    return opened if isinstance(opened, Unreadable) else None
