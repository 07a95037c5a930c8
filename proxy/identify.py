"""Who is asking: every caller has a name of its own, from which nobody finds the credential."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import parse_qsl

TENANT_SIZE = 16

# Everything that authenticates a caller at some provider.
CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key"})
# What says on whose account: sent along wherever a caller's credential is used.
ACCOUNTS = frozenset({b"openai-organization", b"openai-project"})

Pairs = Sequence[tuple[bytes, bytes]]


def credentials_in(headers: Pairs) -> list[tuple[bytes, bytes]]:
    """The headers that a request of our own needs to be made in the caller's name."""
    return [pair for pair in headers if _kind(pair[0]) in CREDENTIALS | ACCOUNTS]


class Tenants:
    """Names callers by an HMAC of their credential under the server's secret."""

    def __init__(self, secret: bytes) -> None:
        # A client sends the same credential with every request.
        self._name = lru_cache(maxsize=1024)(lambda credential: _name(secret, credential))

    def of(self, headers: Pairs, target: bytes) -> bytes:
        return self._name(_credential(headers, target))


def _credential(headers: Pairs, target: bytes) -> tuple[tuple[bytes, bytes], ...]:
    said = [(_kind(name), value) for name, value in headers if _kind(name) in CREDENTIALS]
    return tuple(sorted([*said, *_key_in(target)]))


def _key_in(target: bytes) -> Iterable[tuple[bytes, bytes]]:
    query = target.partition(b"?")[2]
    return (
        [(b"?key", value) for name, value in parse_qsl(query) if name == b"key"] if b"key=" in query else []
    )


def _name(secret: bytes, credential: tuple[tuple[bytes, bytes], ...]) -> bytes:
    # Lengths in front, so that no two credentials run together to the same bytes.
    parts = (b"%d:%b" % (len(part), part) for pair in credential for part in pair)
    return hmac.digest(secret, b"".join(parts), "sha256")[:TENANT_SIZE]


@lru_cache(maxsize=1024)
def _kind(name: bytes) -> bytes:
    return name.lower()
