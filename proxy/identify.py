"""Who is asking: every caller has a name of its own, from which nobody finds the credential."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

TENANT_SIZE = 16

# Everything that authenticates a caller at some provider.
CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key"})
# What says on whose account: sent along wherever a caller's credential is used.
ACCOUNTS = frozenset({b"openai-organization", b"openai-project"})
_IN_THE_CALLERS_NAME = CREDENTIALS | ACCOUNTS

Pairs = Sequence[tuple[bytes, bytes]]


def credentials_in(headers: Pairs) -> list[tuple[bytes, bytes]]:
    """The headers that a request of our own needs to be made in the caller's name."""
    return [pair for pair in headers if pair[0].lower() in _IN_THE_CALLERS_NAME]


class Tenants:
    """Names callers by an HMAC of their credential under the server's secret.

    Made anew for every request, in a few microseconds: to remember names would be to keep credentials.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def use(self, secret: bytes) -> None:
        """Name callers under this one from now on. Nobody finds what was kept under the names until then."""
        self._secret = secret

    def of(self, headers: Pairs, target: bytes) -> bytes:
        said = [(kind, value) for name, value in headers if (kind := name.lower()) in CREDENTIALS]
        credential = sorted([*said, *_keys_in(target)])
        # Lengths in front, so that no two credentials run together to the same bytes.
        parts = (b"%d:%b" % (len(part), part) for pair in credential for part in pair)
        return hmac.digest(self._secret, b"".join(parts), "sha256")[:TENANT_SIZE]


def _keys_in(target: bytes) -> list[tuple[bytes, bytes]]:
    """Google's `?key=`. In bytes: a key need not be text, and two that differ must not become one."""
    query = target.partition(b"?")[2]
    if not query:
        return []
    fields = (field.partition(b"=") for field in query.split(b"&"))
    return [
        (b"?key", unquote_to_bytes(value)) for name, _, value in fields if unquote_to_bytes(name) == b"key"
    ]
