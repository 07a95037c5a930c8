"""A request's messages as they are counted: a chain that names every beginning, and what it adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate
from typing import Protocol, TypeVar

from proxy.counting.estimate import NOTHING, Estimate
from proxy.ports import COMMON

DIGEST_SIZE = 16

# They stand outside the chain: clients put the time of day there, and a conversation goes on all the same.
OUTSIDE_THE_CHAIN = frozenset({"system", "developer"})
ANSWERED_BY = "assistant"


def digest_of(data: bytes, tenant: bytes) -> bytes:
    """Names the bytes, and nobody but this tenant finds them by it."""
    return blake2b(data, digest_size=DIGEST_SIZE, key=tenant).digest()


@dataclass(frozen=True, slots=True)
class Message:
    """One message as far as counting goes."""

    digest: bytes
    role: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Outside:
    """What is billed beside the chain: system messages, tools, the answer's format."""

    digest: bytes
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Prompt:
    """A measured request. `chain[k]` names its first k messages, `sums[k]` is their size."""

    chain: Sequence[bytes]
    sums: Sequence[Estimate]
    roles: Sequence[str]
    outside: Outside
    home: bytes = COMMON  # of all that is kept of the conversation

    @property
    def opening(self) -> bytes:
        """Names what stands outside the chain."""
        return self.outside.digest

    @property
    def length(self) -> int:
        return len(self.roles)

    @property
    def estimate(self) -> Estimate:
        return self.sums[-1] + self.outside.estimate

    def beside(self, tokens: int) -> Prompt:
        """The same with so many more tokens outside the chain."""
        return replace(self, outside=replace(self.outside, estimate=self.outside.estimate + Estimate(tokens)))

    def since(self, length: int) -> Estimate:
        """The size of what comes after the first `length` messages."""
        return self.sums[-1] - self.sums[length] if length else self.sums[-1]

    def message(self, index: int) -> Estimate:
        return self.sums[index + 1] - self.sums[index]


class Named(Protocol):
    """A message by its name, counted or not."""

    @property
    def digest(self) -> bytes: ...

    @property
    def role(self) -> str: ...


N = TypeVar("N", bound=Named)


class Chain:
    """Messages put into a chain one by one."""

    def __init__(self, tenant: bytes, values: Sequence[bytes] = (), roles: Sequence[str] = ()) -> None:
        self.values = [*values] or [digest_of(b"", tenant)]
        self.roles = [*roles]

    def add(self, message: Named) -> None:
        self.values.append(blake2b(self.values[-1] + message.digest, digest_size=DIGEST_SIZE).digest())
        self.roles.append(message.role)


def spoken(messages: Iterable[N]) -> Iterator[N]:
    """Those that are in the chain."""
    return (message for message in messages if message.role not in OUTSIDE_THE_CHAIN)


def sums(messages: Iterable[Message], before: Sequence[Estimate] = (NOTHING,)) -> list[Estimate]:
    """What each beginning of a chain comes to, going on from those that are known."""
    *known, last = before
    return [*known, *accumulate((message.estimate for message in messages), initial=last)]
