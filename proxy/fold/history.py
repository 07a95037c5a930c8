"""A request's messages as folding sees them, and the chain that names every beginning of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

DIGEST_SIZE = 16

# They are never folded and stand outside the chain: clients put the time of day there.
INSTRUCTING = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `raw` is the client's own bytes and is never edited."""

    raw: bytes
    role: str
    identity: bytes  # names what it says, whatever clients drop or rewrite when they send it again
    tokens: int
    calls: tuple[str, ...] = ()  # the ids of the tool calls in it; of a legacy call the function's name
    answers: str | None = None  # the id of the call whose result it is; of a legacy result the name

    @property
    def instructs(self) -> bool:
        return self.role in INSTRUCTING


@dataclass(frozen=True, slots=True)
class History:
    """All messages in the client's order. Places in `turns` are *positions*; the turns that do not instruct
    are *spoken* and numbered by themselves: `chain[k]` names the first k spoken turns.
    """

    turns: Sequence[Turn]
    spoken: Sequence[int]  # their positions
    chain: Sequence[bytes]

    @property
    def home(self) -> bytes:
        """Where all that is kept of it lies."""
        return home_in(self.chain)

    @property
    def length(self) -> int:
        """How many turns are spoken."""
        return len(self.spoken)

    def position(self, number: int) -> int:
        """Where the spoken turn of this number stands; the end, for the one after the last."""
        return self.spoken[number] if number < len(self.spoken) else len(self.turns)


def history(turns: Sequence[Turn], tenant: bytes) -> History:
    spoken = [position for position, turn in enumerate(turns) if not turn.instructs]
    chain = [beginning(tenant)]
    for position in spoken:
        chain.append(linked(chain[-1], turns[position].identity))
    return History(turns, spoken, chain)


def home_in(chain: Sequence[bytes]) -> bytes:
    """Named by the first turn that is spoken: the same for a conversation and all its branches."""
    return chain[min(1, len(chain) - 1)]


def beginning(tenant: bytes) -> bytes:
    """What a tenant's chains begin with."""
    return blake2b(b"", digest_size=DIGEST_SIZE, key=tenant).digest()


def linked(value: bytes, identity: bytes) -> bytes:
    return blake2b(value + identity, digest_size=DIGEST_SIZE).digest()
