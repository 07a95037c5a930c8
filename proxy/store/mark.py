"""What shows those who have no key that values are sealed: the mark of each, and a sign for the whole store.

Who has a key imports `keyring`, and with it `cryptography`, which takes 30 ms.
"""

from __future__ import annotations

from proxy.ports import NOBODY, Space, Store
from proxy.store.slots import SECRET, Slot

# Neither MessagePack nor JSON nor any text begins with it: what was never sealed is told apart.
MARK = b"\xc1"
# The server's secret would do, but with a shared store the settings have it.
SIGN = Slot(NOBODY, Space.SERVER, b"sealed")

WHERE_IT_SHOWS = (SECRET, SIGN)


def is_sealed(value: bytes) -> bool:
    return value.startswith(MARK)


async def put_sign(store: Store) -> None:
    """For those who come later without a key."""
    await store.put_new(*SIGN, MARK, ttl=None)


async def has_sign(store: Store) -> bool:
    """Does somebody keep sealed values there? What is asked is the store itself, with no keys in between."""
    found = await store.get(NOBODY, Space.SERVER, [slot.key for slot in WHERE_IT_SHOWS])
    return any(map(is_sealed, found.values()))
