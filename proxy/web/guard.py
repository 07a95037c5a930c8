"""Who may see Tailfold's own pages."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from aiohttp import web

from proxy.errors import ForbiddenHost, Unauthorized

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    def __init__(self, token: str | None, hosts: Iterable[str]) -> None:
        self._token = token.encode() if token else None
        self._hosts = _LOOPBACK | {host.lower() for host in hosts}

    def check_host(self, request: web.Request) -> None:
        """A page in somebody's browser may have pointed its own name at our address: refuse unknown names."""
        host = _name(request.headers.get("Host", ""))
        if host not in self._hosts:
            raise ForbiddenHost("This host name is not allowed here; add it to admin.hosts.")

    def check_token(self, request: web.Request) -> None:
        """Ask for the admin token once one is set."""
        if self._token is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = given.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() != "bearer" or not hmac.compare_digest(known, self._token):
            raise Unauthorized("The admin token is needed here: Authorization: Bearer <token>.")


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
