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
    RedisError,
    ResponseError,
)

from proxy.store.outage import Outage, Reason

_KINDS: tuple[tuple[type[Exception], Reason, str], ...] = (
    (BusyLoadingError, "loading", "the server is still loading its data"),
    (ReadOnlyError, "readonly", "the server is a replica and takes nothing in"),
    (OutOfMemoryError, "full", "the server has no memory left"),
    (AuthenticationError, "refused", "the server does not accept the user or the password"),
    (ssl.SSLCertVerificationError, "refused", "the server's certificate is not to be trusted"),
)
# What the library has no class for, by the word that the answer begins with.
_CODES: dict[str, tuple[Reason, str]] = {
    "OOM": ("full", "the server has no memory left"),
    "READONLY": ("readonly", "the server is a replica and takes nothing in"),
    "MISCONF": ("readonly", "the server cannot save its data and takes nothing in"),
    "NOREPLICAS": ("readonly", "the server has too few replicas and takes nothing in"),
}
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
    return first or Outage("unavailable", f"the server cannot be asked ({type(error).__name__})")


def _chain(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


def _told(error: BaseException) -> Outage | None:
    if isinstance(error, MasterNotFoundError):
        if AuthenticationError.__name__ in str(error):  # all that is left of what each of them has said
            return Outage("refused", "no Sentinel accepts the user or the password")
        return Outage("unavailable", "no Sentinel names a master")
    for kind, reason, message in _KINDS:
        if isinstance(error, kind):
            return Outage(reason, message)
    if not isinstance(error, ResponseError):
        return None
    code = error.status_code or str(error).partition(" ")[0]
    if code in _CODES:
        return Outage(*_CODES[code])
    if isinstance(error, NoPermissionError) or str(error).startswith(_NOT_FOR_US):
        return Outage("refused", f"the server does not let us use {_command_in(error)}")
    return Outage("unavailable", f"the server answers {code}" if code.isupper() else "the server answers ERR")


def _command_in(error: RedisError) -> str:
    quoted = re.search(r"'(\w+)", str(error))
    name = quoted[1].upper() if quoted else ""
    return name if name in _NEEDED else "our keys, or a command"
