"""From a request to its size: what is remembered is looked up, and only what is new is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from time import monotonic
from typing import TypeVar

import msgspec

from proxy import messages
from proxy.counting import framing
from proxy.counting.estimate import Estimate
from proxy.counting.framing import Scheme
from proxy.counting.prompt import Message, Outside, digest_of
from proxy.counting.recollection import Beginning, Extras, Measured, Recollection, measured
from proxy.counting.tokenizer import Encodings, Tokenizer
from proxy.messages import ChatRequest
from proxy.ports import Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

T = TypeVar("T")

# Below this a thread costs more than the counting, and nobody notices the wait.
INLINE_BYTES = 16 * 1024
# How much of one request is counted, and for how long, before the rest of it is taken roughly.
MOST_BYTES = 16 * 1024 * 1024
MOST_SECONDS = 2.0
REMEMBERED = 32 * 1024
KEPT = 30 * 24 * 3600.0

# Raised whenever the same bytes would be estimated differently: what was stored before is not found then.
_FRAMING_VERSION = b"1"

_read_estimate = msgspec.msgpack.Decoder(Estimate).decode
_write = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to be measured by itself: a message, the list of tools, the answer's format."""

    raw: bytes
    digest: bytes
    measure: Callable[[bytes, Scheme, Tokenizer | None], Estimate]
    role: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    measured: Measured
    familiar: bool  # does the conversation go on from one that this process has seen?
    fresh: Mapping[bytes, Estimate] = field(default_factory=dict)  # counted just now, to be stored


def scheme_key(scheme: Scheme) -> bytes:
    named = b"\0".join([scheme.encoding.encode(), scheme.images.encode(), _FRAMING_VERSION])
    return blake2b(named, digest_size=4).digest()


class Measurer:
    def __init__(
        self, encodings: Encodings, recollection: Recollection, store: LateWriter, pool: Executor
    ) -> None:
        self._encodings = encodings
        self._recollection = recollection
        self._store = store
        self._pool = pool
        self._remembered: Recent[bytes, Estimate] = Recent(REMEMBERED)

    async def measure(self, tenant: bytes, chat: ChatRequest, scheme: Scheme) -> Measurement:
        scope = tenant + scheme_key(scheme)
        beginning = self._recollection.find(scope, chat.messages)
        known = beginning.of
        extras_json = (chat.tools, chat.functions, chat.response_format)
        same_extras = known is not None and known.extras.json == extras_json
        if known is not None and same_extras and known.array == chat.messages:
            return Measurement(known, familiar=True)
        added = await self._off_loop(len(chat.messages), partial(_message_pieces, tenant, chat, beginning))
        extra = [] if same_extras else _extra_pieces(tenant, chat)
        estimates, fresh = await self._estimates(tenant, scheme, [*extra, *added])
        extras = known.extras if known and same_extras else _extras(extra, estimates, tenant, extras_json)
        new = [(p.raw, Message(p.digest, p.role, estimates[p.digest])) for p in added]
        result = measured(tenant, chat.messages, beginning, new, extras)
        if not result.prompt.estimate.rough:
            self._recollection.keep(scope, result, known)
        return Measurement(result, bool(beginning.length), fresh)

    async def _estimates(
        self, tenant: bytes, scheme: Scheme, pieces: Sequence[Piece]
    ) -> tuple[dict[bytes, Estimate], dict[bytes, Estimate]]:
        """The size of each piece by its digest; and those that are not in the store yet, by their keys there."""
        suffix = scheme_key(scheme)
        found = {p.digest: e for p in pieces if (e := self._remembered.get(p.digest + suffix)) is not None}
        missing = [piece for piece in pieces if piece.digest not in found]
        if _size(missing) > INLINE_BYTES:
            found |= await self._stored(tenant, suffix, missing)
            missing = [piece for piece in missing if piece.digest not in found]
        counted = await self._count(missing, scheme)
        found |= counted
        for digest, estimate in found.items():
            if not estimate.rough:
                self._remembered.put(digest + suffix, estimate)
        return found, {digest + suffix: e for digest, e in counted.items() if not e.rough}

    async def _stored(self, tenant: bytes, suffix: bytes, pieces: Sequence[Piece]) -> dict[bytes, Estimate]:
        values = await self._store.get(tenant, Space.COUNTS, [piece.digest + suffix for piece in pieces])
        found = {}
        for key, value in values.items():
            try:
                found[key.removesuffix(suffix)] = _read_estimate(value)
            except msgspec.MsgspecError:
                continue  # of another version: counted anew, and written over
        return found

    async def _count(self, pieces: Sequence[Piece], scheme: Scheme) -> dict[bytes, Estimate]:
        if not pieces:
            return {}
        tokenizer = self._encodings.ready(scheme.encoding)
        size = _size(pieces)
        if size <= INLINE_BYTES:
            # Not loaded yet, in the first moments of the process: roughly is good enough for so little.
            if tokenizer is None:
                self._pool.submit(self._encodings.load, scheme.encoding)
            return _counted(pieces, scheme, lambda: tokenizer, monotonic() + MOST_SECONDS)
        load = partial(self._encodings.load, scheme.encoding)
        return await self._off_loop(size, partial(_counted, pieces, scheme, load, monotonic() + MOST_SECONDS))

    async def _off_loop(self, size: int, work: Callable[[], T]) -> T:
        """In a thread where the event loop would be held up noticeably."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _size(pieces: Iterable[Piece]) -> int:
    return sum(len(piece.raw) for piece in pieces)


def _message_pieces(tenant: bytes, chat: ChatRequest, beginning: Beginning) -> list[Piece]:
    raws = beginning.rest(chat.messages) if chat.messages else []
    if raws is None:  # not an array: the upstream will refuse it
        raws = [chat.messages]
    return [
        Piece(raw, digest_of(raw, tenant), framing.measure_message, messages.role_of(raw)) for raw in raws
    ]


def _extra_pieces(tenant: bytes, chat: ChatRequest) -> list[Piece]:
    lists = [
        Piece(raw, digest_of(b"tools" + raw, tenant), _tools) for raw in (chat.tools, chat.functions) if raw
    ]
    form = chat.response_format
    return [*lists, Piece(form, digest_of(b"format" + form, tenant), _format)] if form else lists


def _tools(raw: bytes, _scheme: Scheme, tokenizer: Tokenizer | None) -> Estimate:
    return framing.measure_tools(raw, tokenizer)


def _format(raw: bytes, _scheme: Scheme, tokenizer: Tokenizer | None) -> Estimate:
    return framing.measure_response_format(raw, tokenizer)


def _extras(
    pieces: Sequence[Piece], estimates: Mapping[bytes, Estimate], tenant: bytes, json: tuple[bytes, ...]
) -> Extras:
    total = sum((estimates[piece.digest] for piece in pieces), Estimate(fixed=framing.REQUEST))
    return Extras(json, Outside(digest_of(b"".join(piece.digest for piece in pieces), tenant), total))


def _counted(
    pieces: Sequence[Piece], scheme: Scheme, load: Callable[[], Tokenizer | None], deadline: float
) -> dict[bytes, Estimate]:
    """Counted in order while there is time; whatever is left then is taken roughly."""
    tokenizer, left = load(), MOST_BYTES
    counted = {}
    for piece in pieces:
        left -= len(piece.raw)
        in_bounds = left >= 0 and monotonic() < deadline
        counted[piece.digest] = piece.measure(piece.raw, scheme, tokenizer if in_bounds else None)
    return counted


def later(store: LateWriter, tenant: bytes, fresh: Mapping[bytes, Estimate]) -> None:
    if fresh:
        values = {key: _write(estimate) for key, estimate in fresh.items()}
        store.later(tenant, Space.COUNTS, values, ttl=KEPT)
