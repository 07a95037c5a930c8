"""What a fold is once it has been made: complete, and never changed."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """How the text of a fold was made, from the best to the last resort."""

    SUMMARY = "summary"  # by a model
    EXTRACT = "extract"  # sentences and artefacts picked without a model
    SHRUNK = "shrunk"  # the same, and the middle of texts in kept messages left out
    TRUNCATION = "truncation"  # nothing but a marker that says how much was left out


class Trigger(StrEnum):
    AUTO = "auto"
    MANUAL = "manual"


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """The first `covers` spoken turns of a history, told in fewer words. It belongs to every history whose
    chain has `prefix` there, and to no other.

    Everything that is sent in their place is in here byte for byte, so that neither a changed setting nor a
    new release ever rewrites a prefix that a provider has cached.
    """

    id: str
    home: bytes  # of the conversation: where it is kept
    prefix: bytes  # the chain's value at `covers`
    covers: int
    kept: tuple[int, ...]  # numbers of covered turns that are sent all the same, after the summary
    messages: tuple[bytes, ...]  # what stands in the place of the others: the summary, an acknowledgement
    plainer: tuple[bytes, ...] = ()  # the same for a template that refuses their role
    appended: bytes = (
        b""  # a JSON string's inside, put behind the first instruction's text in place of `messages`
    )
    shrunk: dict[int, bytes] = {}  # what is sent of kept turns that were too large as they are
    text: str  # the summary alone, as a person reads it
    kind: Kind
    trigger: Trigger
    created: float
    original_tokens: int
    summary_tokens: int
    parent: str | None = None  # the fold that this one has merged
    model: str | None = None  # which wrote the text
    # Names the instructions and tools that its writer has seen: it is for requests with the same ones only.
    beside: bytes | None = None

    @property
    def address(self) -> bytes:
        return address_of(self.prefix, self.beside)


def address_of(prefix: bytes, beside: bytes | None) -> bytes:
    """What a fold is kept under: one that has seen instructions does not take the place of one for all."""
    return prefix if beside is None else prefix + beside


_decode = msgspec.msgpack.Decoder(Fold).decode
_encode = msgspec.msgpack.Encoder().encode


def to_bytes(fold: Fold) -> bytes:
    return _encode(fold)


def from_bytes(stored: bytes) -> Fold | None:
    """None where it is of another version, or was never a fold."""
    try:
        return _decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
