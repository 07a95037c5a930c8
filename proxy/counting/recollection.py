"""What this process remembers of the conversations it has seen lately.

An agent resends its whole history and adds a little. Comparing its bytes with those it sent last costs a
tenth of reading them, so whatever is known of a beginning that has not changed is taken over: the cost of a
request follows what is new in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from proxy import messages
from proxy.counting.prompt import DIGEST_SIZE, OUTSIDE_THE_CHAIN, Chain, Message, Outside, Prompt, digest_of

# What a remembered message costs beside its bytes, roughly.
_PER_MESSAGE = 256
# Conversations that begin with the same user message; more of them at a time are rare.
_ALIKE = 8
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
    def size(self) -> int:
        return len(self.array) + _PER_MESSAGE * len(self.messages)

    def common(self, array: bytes) -> int:
        """How many of these messages `array` begins with, byte for byte."""
        if not self.ends or array == self.array or array.startswith(self.array[: self.ends[-1]]):
            return len(self.ends)
        # Each beginning contains the shorter ones, so the place where they part is found by halving.
        return bisect_left(self.ends, True, key=lambda end: not array.startswith(self.array[:end]))


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

    def rest(self, array: bytes) -> list[bytes] | None:
        """The messages that come after it, each in its own bytes; None where there is no array."""
        if self.of is None:
            return messages.items(array)
        tail = array[self.of.ends[self.length - 1] :].lstrip(_WHITE)
        return messages.items(b"[" + tail[1:]) if tail.startswith(b",") else []

    def chain(self, tenant: bytes) -> Chain:
        if self.of is None:
            return Chain(tenant)
        dropped = sum(message.role not in OUTSIDE_THE_CHAIN for message in self.of.messages[self.length :])
        prompt, kept = self.of.prompt, self.of.prompt.length - dropped
        return Chain(tenant, prompt.chain[: kept + 1], prompt.sums[: kept + 1], prompt.roles[:kept])


def measured(
    tenant: bytes,
    array: bytes,
    beginning: Beginning,
    added: Sequence[tuple[bytes, Message]],
    extras: Extras,
) -> Measured:
    """All messages of a request: those of its known beginning, and those that were measured just now."""
    chain = beginning.chain(tenant)
    for _, message in added:
        if message.role not in OUTSIDE_THE_CHAIN:
            chain.add(message)
    everything = [*beginning.messages, *(message for _, message in added)]
    prompt = Prompt(chain.values, chain.sums, chain.roles, _outside(everything, extras))
    ends = _ends(array, beginning, [raw for raw, _ in added])
    return Measured(array, ends, everything, extras, prompt)


def _outside(everything: Sequence[Message], extras: Extras) -> Outside:
    estimate, named = extras.outside.estimate, blake2b(extras.outside.digest, digest_size=DIGEST_SIZE)
    for message in everything:
        if message.role in OUTSIDE_THE_CHAIN:
            named.update(message.digest)
            estimate += message.estimate
    return Outside(named.digest(), estimate)


def _ends(array: bytes, beginning: Beginning, added: Sequence[bytes]) -> Sequence[int]:
    """None are known where a message is not an object: only a closing brace shows where it really ends."""
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
        self._held = 0
        self._alike: OrderedDict[bytes, list[Measured]] = OrderedDict()

    def find(self, scope: bytes, array: bytes) -> Beginning:
        """The longest beginning that `array` shares with anything remembered."""
        key = _key(scope, array)
        candidates = [Beginning(known.common(array), known) for known in self._alike.get(key, ())]
        longest = max(candidates, key=lambda candidate: candidate.length, default=Beginning())
        if not longest.length:
            return Beginning()
        self._alike.move_to_end(key)
        return longest

    def keep(self, scope: bytes, new: Measured, instead_of: Measured | None) -> None:
        """Remember `new`, and forget what it has grown out of."""
        if not new.ends or new.size > self._most:
            return
        key = _key(scope, new.array)
        alike = self._alike.pop(key, [])
        kept = [new, *(other for other in alike if other is not instead_of)][:_ALIKE]
        self._held += _size(kept) - _size(alike)
        self._alike[key] = kept
        while self._held > self._most:
            _, oldest = self._alike.popitem(last=False)
            self._held -= _size(oldest)


def _size(several: Sequence[Measured]) -> int:
    return sum(one.size for one in several)


def _key(scope: bytes, array: bytes) -> bytes:
    """The same for all states of a conversation: its first user message, which tells most of them apart."""
    begin = max(0, array.find(b'"user"'))
    end = array.find(b'"}', begin)
    opening = array[begin : min(end, begin + 256) if end > 0 else begin + 256]
    return digest_of(scope + opening, b"")
