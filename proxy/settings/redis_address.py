"""How a shared store is named: one server, one that Sentinels choose, or a cluster.

    redis://user:password@host:6379/0          rediss://… the same over TLS
    redis+sentinel://host:26379,host:26379/mymaster/0
    redis+cluster://host:6379,host:6379

Behind a question mark: `ca` (a PEM file) and `verify=false`; for Sentinels and clusters `tls=true`; for
Sentinels that have a password of their own `sentinel_user` and `sentinel_password`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

_PORT = 6379
_SENTINELS_PORT = 26379
_KNOWN = frozenset({"ca", "verify", "tls", "sentinel_user", "sentinel_password"})


class NotAnAddress(ValueError):
    """The message is fit to be shown: it repeats no part of the URL."""


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    hosts: Sequence[tuple[str, int]]
    service: str = ""  # as Sentinels call the master
    database: int = 0
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_user: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    verify: bool = True

    @property
    def is_cluster(self) -> bool:
        return self.scheme == "redis+cluster"

    @property
    def is_sentinel(self) -> bool:
        return self.scheme == "redis+sentinel"


def address_in(url: str) -> Address:
    if not _is_text(url):
        raise NotAnAddress("is not text that a server can be sent")
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    rest, _, path = rest.partition("/") if "@" not in rest else _behind_the_hosts(rest)
    userinfo, at, hosts = rest.rpartition("@")
    user, colon, password = userinfo.partition(":")
    said = _parameters(query)
    service, database = _path(scheme, path)
    named = _hosts(hosts, _SENTINELS_PORT if scheme == "redis+sentinel" else _PORT)
    if len(named) > 1 and scheme in ("redis", "rediss"):
        raise NotAnAddress("should name one host; several are for redis+sentinel:// and redis+cluster://")
    return Address(
        scheme,
        named,
        service,
        database,
        unquote(user) if at and user else None,
        unquote(password) if at and colon else None,
        said.get("sentinel_user"),
        said.get("sentinel_password"),
        scheme == "rediss" or _yes("tls", said.get("tls", "false")),
        said.get("ca"),
        _yes("verify", said.get("verify", "true")),
    )


def _is_text(url: str) -> bool:
    """An environment may have bytes that are not."""
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def _behind_the_hosts(rest: str) -> tuple[str, str, str]:
    """A password may have a slash in it."""
    userinfo, _, hosts = rest.rpartition("@")
    hosts, slash, path = hosts.partition("/")
    return f"{userinfo}@{hosts}", slash, path


def _parameters(query: str) -> dict[str, str]:
    try:
        said = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=16)
    except ValueError:
        raise NotAnAddress(
            "what stands behind the ? should be name=value, joined by &; a ? in a password is written %3F"
        ) from None
    if said.keys() - _KNOWN:
        # Not repeated: behind the ? of a password stands the rest of it.
        raise NotAnAddress(
            f"may have behind the ? only {', '.join(sorted(_KNOWN))}; a ? in a password is written %3F"
        )
    return {name: values[-1] for name, values in said.items()}


def _yes(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise NotAnAddress(f"{name} should be true or false")
    return value.lower() in ("true", "1", "yes")


def _path(scheme: str, path: str) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    service = ""
    if scheme == "redis+sentinel":
        if not parts:
            raise NotAnAddress("should name the master behind the hosts: redis+sentinel://host/mymaster")
        service, *parts = parts
    if scheme == "redis+cluster" and parts not in ([], ["0"]):
        raise NotAnAddress("a cluster has database 0 only")
    if len(parts) > 1 or not all(_is_number(part) for part in parts):
        raise NotAnAddress("should end with the number of a database, such as /0")
    return service, int(parts[0]) if parts else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _hosts(hosts: str, port: int) -> list[tuple[str, int]]:
    found = [_host(each.strip(), port) for each in hosts.split(",") if each.strip()]
    if not found:
        raise NotAnAddress("should name a host")
    return found


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        said = rest.removeprefix(":") if rest else ""
    else:
        host, _, said = text.partition(":")
    if not _is_host(host) or (said and not (_is_number(said) and 0 < int(said) < 65536)):
        raise NotAnAddress("should name hosts as host or host:port")
    return host, int(said) if said else port


def _is_host(name: str) -> bool:
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return bool(name) and name.isprintable() and " " not in name
