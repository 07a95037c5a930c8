"""What a shared store's trouble means to an operator."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as NoAnswer

from proxy.store.outage import Outage, Reason
from proxy.store.redis_rights import IN_A_CLUSTER, RIGHTS

_KINDS: tuple[tuple[type[Exception], Reason, str, str | None], ...] = (
    (BusyLoadingError, "loading", "the server is still loading its data", None),
    (ReadOnlyError, "readonly", "the server is a replica and takes nothing in", None),
    (OutOfMemoryError, "full", "the server has no memory left", None),
    (
        AuthenticationError,
        "refused",
        "the server does not accept the user or the password",
        "write it as redis://USER:PASSWORD@host, with what is not a letter or a digit as %XX",
    ),
    (
        ssl.SSLCertVerificationError,
        "refused",
        "the server's certificate is not to be trusted",
        "does ca= name the file of the authority that has issued it, and is it for the host in store?",
    ),
    (ssl.SSLError, "unavailable", "no TLS connection comes about", "without TLS it is redis://"),
)
# What the library has no class for, by the word that the answer begins with.
_CODES: dict[str, tuple[Reason, str]] = {
    "OOM": ("full", "the server has no memory left"),
    "READONLY": ("readonly", "the server is a replica and takes nothing in"),
    "MISCONF": ("readonly", "the server cannot save its data and takes nothing in"),
    "NOREPLICAS": ("readonly", "the server has too few replicas and takes nothing in"),
}
_NO_SENTINEL = "unknown command 'SENTINEL'"
_NO_CLUSTER = "cluster support disabled"
_NO_SUCH_DATABASE = "DB index is out of range"
_NOT_FOR_US = ("unknown command", "ACL failure in script")
# Of what a server says no more is repeated: it may quote a key or a value.
_NEEDED = frozenset(
    {
        "ASKING",
        "CLIENT",
        "CLUSTER",
        "COMMAND",
        "DEL",
        "EVAL",
        "EVALSHA",
        "GET",
        "HDEL",
        "HELLO",
        "HGET",
        "HGETALL",
        "HMGET",
        "HRANDFIELD",
        "HSET",
        "PERSIST",
        "PEXPIRE",
        "PTTL",
        "SCAN",
        "SELECT",
        "SENTINEL",
        "SET",
        "TIME",
        "TYPE",
    }
)


def outage_from(error: BaseException) -> Outage:
    """An answer, or what the library made of it: the first that tells us something."""
    told = (_told(each) for each in _chain(error))
    first = next((outage for outage in told if outage is not None), None)
    return first or _silence(error)


def _silence(error: BaseException) -> Outage:
    if isinstance(error, RedisClusterException):
        return _no_cluster()
    if isinstance(error, NoAnswer | TimeoutError):
        hint = (
            "is it frozen, does a firewall drop what is sent to it, or is rediss:// said to one without TLS?"
        )
        return Outage("unavailable", "the server does not answer in time", hint)
    hint = "does it run, and is the address in store right? TLS is rediss://"
    return Outage("unavailable", f"the server cannot be asked ({type(error).__name__})", hint)


def _chain(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


def _told(error: BaseException) -> Outage | None:
    if isinstance(error, MasterNotFoundError):
        return _without_a_master(error)
    for kind, reason, message, hint in _KINDS:
        if isinstance(error, kind):
            return Outage(reason, message, hint)
    return _answered(error) if isinstance(error, ResponseError) else None


def _no_cluster() -> Outage:
    hint = f"is it one, and whole? One server is redis://host:port. Its user needs {IN_A_CLUSTER}"
    return Outage("unavailable", "the server does not answer as a cluster", hint)


def _without_a_master(error: MasterNotFoundError) -> Outage:
    if AuthenticationError.__name__ in str(error):  # all that is left of what each of them has said
        hint = "theirs are ?sentinel_user= and sentinel_password="
        return Outage("refused", "no Sentinel accepts the user or the password", hint)
    hint = "is the master's name behind the hosts the one that the Sentinels know, and do they run?"
    return Outage("unavailable", "no Sentinel names a master", hint)


def _answered(error: ResponseError) -> Outage:
    said = str(error)
    code = error.status_code or said.partition(" ")[0]
    if code in _CODES:
        return Outage(*_CODES[code])
    if said.startswith(_NO_SENTINEL):
        hint = "one server is redis://host:port; Sentinels listen on another port, mostly 26379"
        return Outage("refused", "what answers is no Sentinel", hint)
    if said.endswith(_NO_CLUSTER):
        return _no_cluster()
    if said.startswith(_NO_SUCH_DATABASE):
        hint = "it has 16 unless its configuration says otherwise: 0 to 15"
        return Outage("refused", "the server has no database of this number", hint)
    if isinstance(error, NoPermissionError) or said.startswith(_NOT_FOR_US):
        hint = f"ACL SETUSER … {RIGHTS}"
        return Outage("refused", f"the server does not let us use {_command_in(error)}", hint)
    return Outage("unavailable", f"the server answers {code}" if code.isupper() else "the server answers ERR")


def _command_in(error: RedisError) -> str:
    quoted = re.search(r"'(\w+)", str(error))
    name = quoted[1].upper() if quoted else ""
    return name if name in _NEEDED else "our keys, or a command"
