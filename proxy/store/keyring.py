"""Keys that seal values: only who has one can read a value, change it, or put it in another's place.

A sealed value is a mark, the format's version, the key's id with its length in front, a random nonce, and
what AES-256-GCM makes of the value. Its place (tenant, space, key) is authenticated with it, so that a value
that was moved elsewhere does not open there.

This module is imported only where something is sealed: `cryptography` takes 30 ms to import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.store.mark import MARK, is_sealed
from proxy.store.slots import Slot

_VERSION = 1
_START = MARK + bytes((_VERSION,))
_ID_AT = len(_START) + 1
_NONCE, _TAG = 12, 16


class Unreadable(StrEnum):
    PLAIN = "it is not sealed"
    DAMAGED = "it was changed, or belongs to another place"
    FOREIGN = "it is sealed under a key that is not in encryption.keys, or by a newer Tailfold"


class Keyring:
    """Keys by their id. The first one seals, all of them open."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self.ids = [name.encode() for name in keys]
        self._ciphers = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._header = _header(self.ids[0])
        self._cipher = self._ciphers[self.ids[0]]

    def seal(self, slot: Slot, value: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return self._header + nonce + self._cipher.encrypt(nonce, value, _bound_to(slot, self._header))

    def open(self, slot: Slot, sealed: bytes) -> bytes | Unreadable:
        if len(sealed) < _ID_AT or not is_sealed(sealed):
            return Unreadable.PLAIN
        if sealed[1] != _VERSION:
            return Unreadable.FOREIGN
        nonce_at = _ID_AT + sealed[2]
        value_at = nonce_at + _NONCE
        if len(sealed) < value_at + _TAG:
            return Unreadable.DAMAGED
        cipher = self._ciphers.get(sealed[_ID_AT:nonce_at])
        if cipher is None:
            return Unreadable.FOREIGN
        try:
            bound = _bound_to(slot, sealed[:nonce_at])
            return cipher.decrypt(sealed[nonce_at:value_at], sealed[value_at:], bound)
        except InvalidTag:
            return Unreadable.DAMAGED


def _header(key_id: bytes) -> bytes:
    return _START + bytes((len(key_id),)) + key_id


def _bound_to(slot: Slot, header: bytes) -> bytes:
    """Lengths in front, so that no two places run together to the same bytes."""
    tenant, space, key = slot
    place = b"%b%b%b%b%b" % (_length(tenant), tenant, _length(space), space.encode(), _length(key))
    return header + place + key


def _length(part: bytes | str) -> bytes:
    return len(part).to_bytes(4, "big")
