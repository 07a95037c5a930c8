"""What this process remembers of the conversations it has seen lately.

An agent resends its whole history and adds a little. Comparing its bytes with those it sent last costs a
tenth of reading them, so whatever is known of a beginning that has not changed is taken over: the cost of a
request follows what is new in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from proxy.counting.estimate import NOTHING
from proxy.counting.prompt import (
    DIGEST_SIZE,
    OUTSIDE_THE_CHAIN,
    Chain,
    Message,
    Named,
    Outside,
    Prompt,
    digest_of,
    spoken,
    sums,
)
from proxy.ports import COMMON

# What a remembered message takes in memory beside its bytes, and a conversation beside its messages.
_PER_MESSAGE = 768
_PER_CONVERSATION = 1280
# Conversations of one caller that begin alike: some clients put the same long text before every first wish.
_ALIKE = 64
# How much of the first user message, to either side of its role, tells conversations apart.
_TELLING = 256
_WHITE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Extras:
    """The client's JSON of what is billed beside the messages, and what it comes to."""

    json: tuple[bytes, ...]  # tools, functions, the answer's format
    outside: Outside


@dataclass(frozen=True, slots=True)
class Measured:
    """The messages of a request, measured. `ends[i]` is where message i ends in `array`."""

    array: bytes
    ends: Sequence[int]
    messages: Sequence[Message]
    extras: Extras
    prompt: Prompt

    @property
    def chain(self) -> Sequence[bytes]:
        return self.prompt.chain

    @property
    def size(self) -> int:
        held = len(self.array) + sum(map(len, self.extras.json))
        return held + _PER_MESSAGE * len(self.messages) + _PER_CONVERSATION

    def begins(self, array: bytes, length: int) -> bool:
        """Does `array` begin with the first `length` of these messages, byte for byte?"""
        if not length:
            return True
        # A view: most of what is compared differs soon, and a copy would cost more than that.
        return length <= len(self.ends) and array.startswith(memoryview(self.array)[: self.ends[length - 1]])

    def common(self, array: bytes) -> int:
        """How many of these messages `array` begins with."""
        if self.begins(array, len(self.ends)):
            return len(self.ends)
        # Each beginning contains the shorter ones, so the place where they part is found by halving.
        lengths = range(1, len(self.ends) + 1)
        return bisect_left(lengths, True, key=lambda length: not self.begins(array, length))


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a request has in common with one that was measured before: its first `length` messages."""

    length: int = 0
    of: Measured | None = None

    @property
    def messages(self) -> Sequence[Message]:
        return self.of.messages[: self.length] if self.of else ()

    @property
    def ends(self) -> Sequence[int]:
        return self.of.ends[: self.length] if self.of else ()

    @property
    def end(self) -> int:
        """Where it ends in the array."""
        return self.of.ends[self.length - 1] if self.of else 0

    @property
    def is_most(self) -> bool:
        """Of what it is the beginning of: then a conversation has gone on, with at most its end rewritten."""
        return self.of is not None and 2 * self.end >= len(self.of.array)

    def is_all_of(self, array: bytes) -> bool:
        """Nothing comes after it, neither here nor there; what lies before its end is the same already."""
        return self.of is not None and array[self.end :] == self.of.array[self.end :]

    def rest(self, array: bytes) -> bytes:
        """The array of the messages that come after it."""
        if self.of is None:
            return array
        tail = array[self.end :].lstrip(_WHITE)
        return b"[" + tail[1:] if tail.startswith(b",") else b"[]"

    @property
    def spoken(self) -> int:
        """How many of them are in the chain."""
        if self.of is None:
            return 0
        return self.of.prompt.length - sum(1 for _ in spoken(self.of.messages[self.length :]))


class Raw(Named, Protocol):
    """A message that has been cut out of its request."""

    @property
    def raw(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Parted:
    """A request in its messages, each under its name. None of them is counted yet."""

    array: bytes
    ends: Sequence[int]
    messages: Sequence[Named]
    chain: Sequence[bytes]
    roles: Sequence[str]  # of those in the chain
    home: bytes
    beginning: Beginning


def parted(
    tenant: bytes,
    array: bytes,
    beginning: Beginning,
    added: Sequence[Raw],
    home_of: Callable[[bytes], bytes],
    home: bytes | None = None,
) -> Parted:
    """`home_of` the first message that is spoken is where all that is kept of a conversation lies, unless its
    home is known.
    """
    known, kept = beginning.of.prompt if beginning.of else None, beginning.spoken
    chain = Chain(tenant, known.chain[: kept + 1], known.roles[:kept]) if known else Chain(tenant)
    new = list(spoken(added))
    for message in new:
        chain.add(message)
    if home is None and known is not None and kept:
        home = known.home
    if home is None:
        # What is no object is all of a request that could not be parted: it begins no conversation.
        home = home_of(new[0].raw) if new and new[0].raw.startswith(b"{") else COMMON
    ends = _ends(array, beginning, [message.raw for message in added])
    return Parted(array, ends, [*beginning.messages, *added], chain.values, chain.roles, home, beginning)


def parts_of(whole: Measured, beginning: Beginning) -> Parted:
    prompt = whole.prompt
    return Parted(whole.array, whole.ends, whole.messages, prompt.chain, prompt.roles, prompt.home, beginning)


def measured(parts: Parted, added: Sequence[Message], extras: Extras) -> Measured:
    """All messages of a request: those of its known beginning, and those that were measured just now."""
    beginning = parts.beginning
    everything = [*beginning.messages, *added]
    before = beginning.of.prompt.sums[: beginning.spoken + 1] if beginning.of else (NOTHING,)
    outside = _outside(everything, extras)
    prompt = Prompt(parts.chain, sums(spoken(added), before), parts.roles, outside, parts.home)
    return Measured(parts.array, parts.ends, everything, extras, prompt)


def _outside(everything: Sequence[Message], extras: Extras) -> Outside:
    instructing = (each.estimate for each in everything if each.role in OUTSIDE_THE_CHAIN)
    name = outside_name(extras.outside.digest, everything)
    return Outside(name, sum(instructing, extras.outside.estimate))


def outside_name(extras: bytes, everything: Sequence[Named]) -> bytes:
    """Names all that stands outside the chain."""
    named = blake2b(extras, digest_size=DIGEST_SIZE)
    for message in everything:
        if message.role in OUTSIDE_THE_CHAIN:
            named.update(message.digest)
    return named.digest()


def _ends(array: bytes, beginning: Beginning, added: Sequence[bytes]) -> Sequence[int]:
    """None are known where a message is not an object: only a closing brace shows where it really ends."""
    if not array.startswith(b"["):
        return ()
    ends = [*beginning.ends]
    for raw in added:
        if not raw.endswith(b"}"):
            return ()
        ends.append(array.index(raw, ends[-1] if ends else 1) + len(raw))
    return ends


class Recollection:
    """The newest state of recent conversations, up to `most` bytes of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._alike: OrderedDict[bytes, list[Measured]] = OrderedDict()  # each list from new to old
        self.held = 0  # bytes

    def find(self, scope: bytes, array: bytes) -> Beginning:
        """The longest beginning that `array` shares with anything remembered."""
        key = _key(scope, array)
        longest = Beginning()
        for known in self._alike.get(key, ()):
            if known.begins(array, longest.length + 1):
                longest = Beginning(known.common(array), known)
        if longest.length:
            self._alike.move_to_end(key)
        return longest

    def keep(self, scope: bytes, new: Measured, beginning: Beginning) -> None:
        """Remember `new`, and forget what it has grown out of. Two branches of a conversation both stay."""
        if not new.ends or new.size > self._most:
            return
        outgrown = beginning.of if beginning.is_most else None
        key = _key(scope, new.array)
        alike = self._alike.pop(key, [])
        kept = [new, *(old for old in alike if old is not outgrown and old.array != new.array)]
        gone = [old for old in alike if old is outgrown or old.array == new.array] + kept[_ALIKE:]
        self._alike[key] = kept[:_ALIKE]
        self.held += new.size - sum(old.size for old in gone)
        while self.held > self._most:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        key, alike = next(iter(self._alike.items()))
        self.held -= alike.pop().size
        if not alike:
            del self._alike[key]


def _key(scope: bytes, array: bytes) -> bytes:
    """The same for all states of a conversation: its first user message, which tells most of them apart.

    Some clients write a message's role first and some its content, so it is looked at to both sides.
    """
    role = max(0, array.find(b'"user"'))
    end = array.find(b'"}', role)
    after = min(end, role + _TELLING) if end > 0 else role + _TELLING
    return digest_of(scope + array[max(0, role - _TELLING) : after], b"")
