"""Which headers travel end to end. Headers are pairs of bytes, in the sender's order and spelling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

Headers = list[tuple[bytes, bytes]]

# Of one hop only (RFC 9110, 7.6.1). `Trailer` goes with them because trailers end here, and so do
# both framing headers: each hop frames the body for itself.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# Answered or made anew here: our own host, the interim 100 (forwarding it hangs), our framing.
_NOT_FORWARDED = _HOP_BY_HOP | {b"host", b"expect", b"content-length", b"x-conversation-id"}
_OURS = b"x-tailfold-"
_NAMING = frozenset({b"x-conversation-id", b"x-conversation-source"})


def to_upstream(received: Sequence[tuple[bytes, bytes]]) -> Headers:
    """What a client's request says to the upstream, without what it says to us."""
    named = _connection_named(received)
    return [pair for pair in received if _is_forwarded(pair[0]) and not (named and pair[0].lower() in named)]


def to_client(received: Headers) -> Headers:
    """What an answer says to the client; `Content-Length` stays: the body is the same."""
    named = _connection_named(received)
    return [pair for pair in received if _is_end_to_end(pair[0]) and not (named and pair[0].lower() in named)]


# The same few names come with every request, so each is judged once.


@lru_cache(maxsize=1024)
def _is_forwarded(name: bytes) -> bool:
    lower = name.lower()
    return lower not in _NOT_FORWARDED and not lower.startswith(_OURS)


@lru_cache(maxsize=1024)
def _is_end_to_end(name: bytes) -> bool:
    lower = name.lower()
    # What an upstream says under our name (another Tailfold, say) is not ours to be said.
    return lower not in _HOP_BY_HOP and lower not in _NAMING and not lower.startswith(_OURS)


def first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    """The first value of a header, `wanted` in lower case."""
    for name, value in headers:
        if len(name) == len(wanted) and name.lower() == wanted:
            return value
    return None


def without(headers: Headers, *unwanted: bytes) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in unwanted]


def replaced(headers: Headers, wanted: bytes, value: bytes) -> Headers:
    """The same headers with one value for `wanted`, in the place where it first stood."""
    result: Headers = []
    done = False
    for pair in headers:
        if pair[0].lower() != wanted:
            result.append(pair)
        elif not done:
            result.append((pair[0], value))
            done = True
    if not done:
        result.append((wanted, value))
    return result


def head_bytes(start_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A message head on the wire; a line break inside a value would be a second header, so it is refused."""
    lines = [start_line, *map(b": ".join, headers)]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise ValueError("line break inside a header")
    return head + b"\r\n\r\n"


def _connection_named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The headers that `Connection` declares to be of one hop only."""
    named: frozenset[bytes] = frozenset()
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection":
            named |= _tokens(value)
    return named


@lru_cache(maxsize=256)
def _tokens(connection: bytes) -> frozenset[bytes]:
    """What one value of `Connection` names, without its usual words and without what must not be named."""
    tokens = frozenset(token.strip().lower() for token in connection.split(b","))
    return tokens - _NEVER_NAMED - {b"keep-alive", b"close", b""}


# `Connection: authorization` is an attack, not a wish: what carries the request's meaning stays.
_NEVER_NAMED = frozenset({b"authorization", b"content-type", b"content-length", b"content-encoding", b"host"})
