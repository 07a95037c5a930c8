"""A request's messages as they are counted: a chain that names every beginning, and what it adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from proxy.counting.estimate import NOTHING, Estimate

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


class Chain:
    """Messages put into a chain one by one."""

    def __init__(
        self,
        tenant: bytes,
        values: Sequence[bytes] = (),
        sums: Sequence[Estimate] = (NOTHING,),
        roles: Sequence[str] = (),
    ) -> None:
        self.values = [*values] or [digest_of(b"", tenant)]
        self.sums = [*sums]
        self.roles = [*roles]

    def add(self, message: Message) -> None:
        self.values.append(blake2b(self.values[-1] + message.digest, digest_size=DIGEST_SIZE).digest())
        self.sums.append(self.sums[-1] + message.estimate)
        self.roles.append(message.role)
