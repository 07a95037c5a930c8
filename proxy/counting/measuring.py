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
from proxy.counting.intricacy import is_intricate
from proxy.counting.prompt import Message, Outside, digest_of
from proxy.counting.recalling import recalled
from proxy.counting.recollection import Beginning, Extras, Measured, Recollection, measured
from proxy.counting.tokenizer import Counting, Encodings, Rationed, Tokenizer
from proxy.messages import ChatRequest
from proxy.ports import Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

T = TypeVar("T")
Measure = Callable[[bytes, Scheme, Counting | None], Estimate]

# Below this a thread costs more than the counting, and nobody notices the wait.
INLINE_BYTES = 16 * 1024
REMEMBERED = 32 * 1024
KEPT = 30 * 24 * 3600.0

# Raised whenever the same bytes would be estimated differently: what was stored before is not found then.
_FRAMING_VERSION = b"3"

_read_estimate = msgspec.msgpack.Decoder(Estimate).decode
_write = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one request is counted, and for how long, before the rest of it is taken roughly."""

    bytes: int = 16 * 1024 * 1024  # of text
    messages: int = 20_000
    seconds: float = 2.0
    # How long requests wait for a vocabulary at the start of the process. With a core to spare, loading takes
    # a tenth of this; without one, to wait once is better than to count wrong.
    patience: float = 3.0


_AS_USUAL = Limits()


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to be measured by itself: a message, the list of tools, the answer's format."""

    raw: bytes
    digest: bytes
    measure: Measure
    role: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    measured: Measured
    fresh: Mapping[bytes, Estimate] = field(default_factory=dict)  # counted just now, to be stored


@dataclass(frozen=True, slots=True)
class _Loading:
    done: asyncio.Future[Tokenizer | None]
    awaited_until: float


def scheme_key(scheme: Scheme) -> bytes:
    named = b"\0".join([scheme.encoding.encode(), scheme.images.encode(), _FRAMING_VERSION])
    return blake2b(named, digest_size=4).digest()


class Measurer:
    def __init__(
        self,
        encodings: Encodings,
        recollection: Recollection,
        store: LateWriter,
        pool: Executor,
        *,
        limits: Limits = _AS_USUAL,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._encodings = encodings
        self._recollection = recollection
        self._store = store
        self._pool = pool
        self._limits = limits
        self._clock = clock
        self._remembered: Recent[bytes, Estimate] = Recent(REMEMBERED)
        self._loading: dict[str, _Loading] = {}

    async def measure(self, tenant: bytes, chat: ChatRequest, scheme: Scheme) -> Measurement:
        scope = tenant + scheme_key(scheme)
        beginning = self._recollection.find(scope, chat.messages)
        known = beginning.of
        extras_json = (chat.tools, chat.functions, chat.response_format)
        same_extras = known is not None and known.extras.json == extras_json
        if known is not None and same_extras and beginning.is_all_of(chat.messages):
            return Measurement(known)
        new_bytes = len(chat.messages) - beginning.end
        most = self._limits.messages
        added = await self._off_loop(new_bytes, partial(_message_pieces, tenant, chat, beginning, most))
        extra: list[Piece] = []
        if not same_extras:
            work = partial(_extra_pieces, tenant, chat)
            extra = await self._off_loop(sum(map(len, extras_json)), work)
        estimates, fresh = await self._estimates(tenant, scheme, [*extra, *added])
        extras = known.extras if known and same_extras else _extras(extra, estimates, tenant, extras_json)
        new = [(p.raw, Message(p.digest, p.role, estimates[p.digest])) for p in added]
        chaining = partial(measured, tenant, chat.messages, beginning, new, extras)
        result = await self._off_loop(new_bytes, chaining)
        if not result.prompt.estimate.rough:
            self._recollection.keep(scope, result, beginning)
        return Measurement(result, fresh)

    def text(self, text: str, scheme: Scheme) -> Estimate:
        """Of a text of our own, roughly where the vocabulary is not there (yet)."""
        return framing.measure_text(text, self._encodings.ready(scheme.encoding))

    async def _estimates(
        self, tenant: bytes, scheme: Scheme, pieces: Sequence[Piece]
    ) -> tuple[dict[bytes, Estimate], dict[bytes, Estimate]]:
        """The size of each piece by its digest; and what is not in the store yet, by its keys there."""
        suffix = scheme_key(scheme)
        found = {p.digest: e for p in pieces if (e := self._remembered.get(p.digest + suffix)) is not None}
        if missing := _not_in(found, pieces):
            found |= await self._stored(tenant, suffix, missing)
            missing = _not_in(found, pieces)
        counted = await self._count(missing, scheme)
        found |= counted
        for digest, estimate in found.items():
            if not estimate.rough:
                self._remembered.put(digest + suffix, estimate)
        return found, {digest + suffix: e for digest, e in counted.items() if not e.rough}

    async def _stored(self, tenant: bytes, suffix: bytes, pieces: Sequence[Piece]) -> dict[bytes, Estimate]:
        keys = [piece.digest + suffix for piece in pieces]
        stored = await recalled(self._store, tenant, Space.COUNTS, keys, _read_estimate)
        return {key.removesuffix(suffix): estimate for key, estimate in stored.items()}

    async def _count(self, pieces: Sequence[Piece], scheme: Scheme) -> dict[bytes, Estimate]:
        if not pieces:
            return {}
        tokenizer = await self._tokenizer(scheme.encoding)
        work = partial(self._counted, pieces, scheme, tokenizer, self._clock() + self._limits.seconds)
        return await self._off_loop(_size(pieces), work)

    def _counted(
        self, pieces: Sequence[Piece], scheme: Scheme, tokenizer: Tokenizer | None, deadline: float
    ) -> dict[bytes, Estimate]:
        """Counted in order while there is time; what is left then is taken roughly. Only text is rationed,
        for nothing else takes long.
        """
        rationed = tokenizer and Rationed(tokenizer, self._limits.bytes, lambda: self._clock() < deadline)
        return {piece.digest: piece.measure(piece.raw, scheme, rationed) for piece in pieces}

    async def _tokenizer(self, encoding: str) -> Tokenizer | None:
        """The first requests of a process wait for it together, and not for long: a disk may hang."""
        if (tokenizer := self._encodings.ready(encoding)) is not None:
            return tokenizer
        if (loading := self._loading.get(encoding)) is None:
            begun = asyncio.get_running_loop().run_in_executor(self._pool, self._encodings.load, encoding)
            loading = self._loading[encoding] = _Loading(begun, self._clock() + self._limits.patience)
        if not loading.done.done():
            await asyncio.wait([loading.done], timeout=max(0.0, loading.awaited_until - self._clock()))
        return loading.done.result() if loading.done.done() else None

    async def _off_loop(self, size: int, work: Callable[[], T]) -> T:
        """In a thread where the event loop would be held up noticeably."""
        if size <= INLINE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _size(pieces: Iterable[Piece]) -> int:
    return sum(len(piece.raw) for piece in pieces)


def _not_in(found: Mapping[bytes, Estimate], pieces: Iterable[Piece]) -> list[Piece]:
    """Each once, however often a request says the same."""
    return list({piece.digest: piece for piece in pieces if piece.digest not in found}.values())


def _message_pieces(tenant: bytes, chat: ChatRequest, beginning: Beginning, most: int) -> list[Piece]:
    if not chat.messages:
        return []
    rest = beginning.rest(chat.messages)
    if is_intricate(rest):
        return [_piece(tenant, b"", rest, _by_size)]
    raws = messages.items(rest)
    if raws is None:  # not an array: the upstream will refuse it
        return [_piece(tenant, b"", rest, framing.measure_message)]
    if len(raws) > most:
        return [_piece(tenant, b"", rest, _by_size)]
    return [_piece(tenant, b"", raw, framing.measure_message, messages.role_of(raw)) for raw in raws]


def _extra_pieces(tenant: bytes, chat: ChatRequest) -> list[Piece]:
    found = [(b"tools", chat.tools, _tools), (b"tools", chat.functions, _tools)]
    found.append((b"format", chat.response_format, _format))
    return [
        _piece(tenant, kind, raw, _by_size if is_intricate(raw) else measure)
        for kind, raw, measure in found
        if raw
    ]


def _piece(tenant: bytes, kind: bytes, raw: bytes, measure: Measure, role: str = "") -> Piece:
    return Piece(raw, digest_of(kind + raw, tenant), measure, role)


def _tools(raw: bytes, _scheme: Scheme, tokenizer: Counting | None) -> Estimate:
    return framing.measure_tools(raw, tokenizer)


def _format(raw: bytes, _scheme: Scheme, tokenizer: Counting | None) -> Estimate:
    return framing.measure_response_format(raw, tokenizer)


def _by_size(raw: bytes, _scheme: Scheme, _tokenizer: Counting | None) -> Estimate:
    return Estimate(tokens=-(-len(raw) // 3), rough=1)


def _extras(
    pieces: Sequence[Piece], estimates: Mapping[bytes, Estimate], tenant: bytes, json: tuple[bytes, ...]
) -> Extras:
    total = sum((estimates[piece.digest] for piece in pieces), Estimate(fixed=framing.REQUEST))
    return Extras(json, Outside(digest_of(b"".join(piece.digest for piece in pieces), tenant), total))


def later(store: LateWriter, tenant: bytes, fresh: Mapping[bytes, Estimate]) -> None:
    if fresh:
        values = {key: _write(estimate) for key, estimate in fresh.items()}
        store.later(tenant, Space.COUNTS, values, ttl=KEPT)
