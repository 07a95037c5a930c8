"""From a request to its size: what is remembered is looked up, and only what is new is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
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
from proxy.counting.prompt import OUTSIDE_THE_CHAIN, Message, Outside, digest_of
from proxy.counting.recalling import recalled
from proxy.counting.recollection import (
    Beginning,
    Extras,
    Measured,
    Parted,
    Recollection,
    measured,
    outside_name,
    parted,
    parts_of,
)
from proxy.counting.tokenizer import Counting, Encodings, Rationed, Tokenizer
from proxy.fold.history import beginning as chain_begins
from proxy.fold.history import linked
from proxy.fold.identity import said
from proxy.messages import ChatRequest
from proxy.ports import COMMON, Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

T = TypeVar("T")
Measure = Callable[[bytes, Scheme, Counting | None], Estimate]

# Below this a thread costs more than the counting, and nobody notices the wait.
INLINE_BYTES = 16 * 1024
REMEMBERED = 32 * 1024

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
class Split:
    """A request in pieces, before any of them is counted."""

    tenant: bytes
    scheme: Scheme
    parts: Parted
    added: Sequence[Piece] = ()  # the messages after the beginning that is remembered
    extras: Sequence[Piece] = ()  # what is billed beside the messages, unless it is remembered
    extras_json: tuple[bytes, ...] = ()
    known_extras: Extras | None = None
    whole: Measured | None = None  # where all of it is remembered

    @property
    def chain(self) -> Sequence[bytes]:
        return self.parts.chain

    @property
    def roles(self) -> Sequence[str]:
        return self.parts.roles

    @property
    def home(self) -> bytes:
        return self.parts.home

    @property
    def length(self) -> int:
        return len(self.parts.roles)

    @property
    def opening(self) -> bytes:
        """Names what stands outside the chain."""
        name = self.known_extras.outside.digest if self.known_extras else _name_of(self.extras, self.tenant)
        return outside_name(name, self.parts.messages)


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

    async def split(
        self, tenant: bytes, chat: ChatRequest, scheme: Scheme, home: bytes | None = None
    ) -> Split:
        """`home` is given where it is known, because this is another form of a request that has one."""
        beginning = self._recollection.find(tenant + scheme_key(scheme), chat.messages)
        known = beginning.of
        extras_json = (chat.tools, chat.functions, chat.response_format)
        same_extras = known is not None and known.extras.json == extras_json
        if known is not None and same_extras and beginning.is_all_of(chat.messages):
            return Split(tenant, scheme, parts_of(known, beginning), whole=known)
        work = partial(_parted, tenant, chat, beginning, self._limits.messages, home)
        added, parts = await self._off_loop(len(chat.messages) - beginning.end, work)
        if known is not None and same_extras:
            return Split(tenant, scheme, parts, added, (), extras_json, known.extras)
        extras = await self._off_loop(sum(map(len, extras_json)), partial(_extra_pieces, tenant, chat))
        return Split(tenant, scheme, parts, added, extras, extras_json)

    def recalling(self, split: Split) -> Awaitable[None] | None:
        """Ask the store for what others have counted of it, if there is anything to ask for."""
        suffix = scheme_key(split.scheme)
        missing = [
            (each.digest, key) for each, key in _keys(split) if each.digest + suffix not in self._remembered
        ]
        return self._recall(split.tenant, dict(missing), suffix) if missing else None

    async def _recall(self, tenant: bytes, keys: Mapping[bytes, bytes], suffix: bytes) -> None:
        found = await recalled(self._store, tenant, Space.COUNTS, list(keys.values()), _read_estimate)
        for digest, key in keys.items():
            if (estimate := found.get(key)) is not None:
                self._remembered.put(digest + suffix, estimate)

    async def measure(self, split: Split) -> Measurement:
        """Whatever is not remembered is counted now."""
        if split.whole is not None:
            return Measurement(split.whole)
        estimates, counted = await self._estimates(split)
        extras = split.known_extras or _extras(split, estimates)
        new = [Message(each.digest, each.role, estimates[each.digest]) for each in split.added]
        result = await self._off_loop(_size(split.added), partial(measured, split.parts, new, extras))
        if not result.prompt.estimate.rough:
            scope = split.tenant + scheme_key(split.scheme)
            self._recollection.keep(scope, result, split.parts.beginning)
        fresh = {key: counted[each.digest] for each, key in _keys(split) if each.digest in counted}
        return Measurement(result, {key: estimate for key, estimate in fresh.items() if not estimate.rough})

    def text(self, text: str, scheme: Scheme) -> Estimate:
        """Of a text of our own, roughly where the vocabulary is not there (yet)."""
        return framing.measure_text(text, self._encodings.ready(scheme.encoding))

    async def _estimates(self, split: Split) -> tuple[dict[bytes, Estimate], dict[bytes, Estimate]]:
        """The size of each piece by its digest; and what of it was counted just now."""
        suffix, pieces = scheme_key(split.scheme), [*split.extras, *split.added]
        found = {p.digest: e for p in pieces if (e := self._remembered.get(p.digest + suffix)) is not None}
        counted = await self._count(_not_in(found, pieces), split.scheme)
        for digest, estimate in counted.items():
            if not estimate.rough:
                self._remembered.put(digest + suffix, estimate)
        return found | counted, counted

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


def _parted(
    tenant: bytes, chat: ChatRequest, beginning: Beginning, most: int, home: bytes | None
) -> tuple[list[Piece], Parted]:
    added = _message_pieces(tenant, chat, beginning, most)
    return added, parted(tenant, chat.messages, beginning, added, partial(_home_of, tenant), home)


def _home_of(tenant: bytes, raw: bytes) -> bytes:
    return linked(chain_begins(tenant), said(raw, tenant).identity)


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


def _extras(split: Split, estimates: Mapping[bytes, Estimate]) -> Extras:
    total = sum((estimates[piece.digest] for piece in split.extras), Estimate(fixed=framing.REQUEST))
    return Extras(split.extras_json, Outside(_name_of(split.extras, split.tenant), total))


def _name_of(extras: Sequence[Piece], tenant: bytes) -> bytes:
    return digest_of(b"".join(piece.digest for piece in extras), tenant)


def _keys(split: Split) -> Iterator[tuple[Piece, bytes]]:
    """Each piece with its place in the store. Instructions and tools are the same in many conversations."""
    suffix = scheme_key(split.scheme)
    for piece in split.extras:
        yield piece, COMMON + piece.digest + suffix
    for piece in split.added:
        home = COMMON if piece.role in OUTSIDE_THE_CHAIN else split.home
        yield piece, home + piece.digest + suffix


def later(store: LateWriter, tenant: bytes, fresh: Mapping[bytes, Estimate], ttl: float) -> None:
    if fresh:
        values = {key: _write(estimate) for key, estimate in fresh.items()}
        store.later(tenant, Space.COUNTS, values, ttl=ttl)
