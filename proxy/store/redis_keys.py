"""Where a value lies in Redis.

What belongs to one conversation lies in one hash per space, under a tag that all of them share: one server of
a cluster holds it all. Everything else is a key of its own.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from typing import NamedTuple

from proxy.ports import HOME_SIZE, HOMED, Space

# Raised whenever what lies under these names would mean something else.
_PREFIX = b"tailfold:1:"
ALL = _PREFIX + b"*"


class Place(NamedTuple):
    """`field` is None where the value is the key's own."""

    key: bytes
    field: bytes | None


def place_of(tenant: bytes, space: Space, key: bytes) -> Place:
    if space in HOMED:
        return Place(_hash(tenant, space, key[:HOME_SIZE]), field_of(key))
    return Place(b"%b%b:%b:%b" % (_PREFIX, space.encode(), _text(tenant), _text(key)), None)


def by_key(tenant: bytes, space: Space, keys: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Which of them lie in which hash."""
    homes: dict[bytes, list[bytes]] = {}
    for key in keys:
        homes.setdefault(key[:HOME_SIZE], []).append(key)
    return {_hash(tenant, space, home): homed for home, homed in homes.items()}


def field_of(key: bytes) -> bytes:
    """Of a hash: what the key says beyond its home."""
    return key[HOME_SIZE:]


class Named(NamedTuple):
    tenant: bytes
    space: Space
    key: bytes  # of a hash only the home


def named(name: bytes) -> Named | None:
    """What lies under a name that was found; None where it is not one of ours."""
    try:
        space, tenant, key = name.removeprefix(_PREFIX).replace(b"{", b"").replace(b"}", b"").split(b":")
        return Named(_bytes(tenant), Space(space.decode()), _bytes(key))
    except (ValueError, NotBase64):
        return None


def bound(tenant: bytes, space: Space, key: bytes) -> bytes:
    """What the checksum of a value covers beside it, so that it is good in its own place only."""
    return b"%b%b:%b:%b" % (_PREFIX, space.encode(), tenant, key)


def _hash(tenant: bytes, space: Space, home: bytes) -> bytes:
    return b"%b%b:{%b:%b}" % (_PREFIX, space.encode(), _text(tenant), _text(home))


def _text(name: bytes) -> bytes:
    return urlsafe_b64encode(name).rstrip(b"=")


def _bytes(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
