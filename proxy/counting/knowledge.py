"""What bills have taught so far: in memory for what is in use, in the store for after a restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Protocol

import msgspec

from proxy.counting.anchors import Anchor, Known, Lesson, Opening
from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.prompt import ANSWERED_BY, DIGEST_SIZE, Prompt
from proxy.counting.recalling import recalled, stored, understood
from proxy.ports import COMMON, NOBODY, Space
from proxy.recent import Recent
from proxy.store.writing import KEPT, LateWriter

ANCHORS = 16 * 1024
MODELS = 1024
# Asked of the store at a time: a conversation's anchors lie at its end.
_NEWEST = 64

# Raised whenever stored values would mean something else: what was stored before is not found then.
_VERSION = b"3"


class Called(Protocol):
    """A request by its names, counted or not."""

    @property
    def home(self) -> bytes: ...

    @property
    def chain(self) -> Sequence[bytes]: ...

    @property
    def roles(self) -> Sequence[str]: ...

    @property
    def length(self) -> int: ...

    @property
    def opening(self) -> bytes: ...


class _Billed(msgspec.Struct, frozen=True, array_like=True):
    """A bill, and the name of what it was for: a request may have been sent in another form than it came."""

    at: bytes
    anchor: Anchor


_read_billed = msgspec.msgpack.Decoder(_Billed).decode
_read_opening = msgspec.msgpack.Decoder(Opening).decode
_read_calibration = msgspec.msgpack.Decoder(Calibration).decode
_write = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Found:
    length: int = 0  # of the beginning that the anchor is for
    anchor: Anchor | None = None
    searched: int = 0  # of the beginning for which nobody need be asked any more


class Knowledge:
    """Keyed by upstream and model: another server, or another model, bills differently."""

    def __init__(self, upstream: str, store: LateWriter, *, kept: Callable[[], float] = lambda: KEPT) -> None:
        """`kept` is how long bills are."""
        # Asked for several times per request, and always for the same few models.
        self._model_key = lru_cache(MODELS)(partial(_model_key, upstream.encode()))
        self._store = store
        self._kept = kept
        self._anchors: Recent[bytes, Anchor] = Recent(ANCHORS)
        self._searched: Recent[bytes, int] = Recent(ANCHORS)  # requests; up to where they were anchored
        self._openings: Recent[bytes, Opening] = Recent(ANCHORS)
        self._unopened: Recent[bytes, bool] = Recent(ANCHORS)  # those of which the store knows nothing
        self._calibrations: Recent[bytes, Calibration] = Recent(MODELS)
        self._uncalibrated: Recent[bytes, bool] = Recent(MODELS)  # likewise

    def recalling(self, tenant: bytes, model: str, asked: Called) -> list[Awaitable[None]]:
        """Questions to the store, where others may know more of a request that is to be sent."""
        key, questions = self._model_key(model), list[Awaitable[None]]()
        found, names = self._newest_anchor(key, asked), list[bytes]()
        if _others_answered(asked, found.searched):
            names = [_under(key, value) for value in asked.chain[found.searched + 1 :][-_NEWEST:]]
        # Whoever has answered has learned from it: all replicas are to count alike, and so to fold alike.
        if names or (key not in self._calibrations and key not in self._uncalibrated):
            questions.append(self._recall_calibration(key))
        # Most conversations that begin are new and need their opening next.
        opening = _under(key, asked.opening)
        needs_opening = bool(names) or (found.anchor is None and not self._was_asked_for(opening))
        if needs_opening:
            questions.append(self._recall(tenant, asked.home, names, opening))
        return questions

    def known(self, model: str, prompt: Prompt, factor: float) -> Known:
        key = self._model_key(model)
        found = self._newest_anchor(key, prompt)
        self._searched.put(_under(key, prompt.chain[-1]), found.length)
        opening = self._openings.get(_under(key, prompt.opening))
        return Known(self.calibration(model, factor), found.anchor, found.length, opening)

    def calibration(self, model: str, factor: float) -> Calibration:
        """The newest that is known without asking the store."""
        return self._calibrations.get(self._model_key(model)) or first_calibration(factor)

    def opening(self, model: str, prompt: Prompt) -> Opening | None:
        """Likewise."""
        return self._openings.get(_under(self._model_key(model), prompt.opening))

    def learn(
        self, tenant: bytes, model: str, prompt: Prompt, lesson: Lesson, came: Prompt | None = None
    ) -> None:
        """`prompt` is what was sent, `came` the request as it came, under which others look for the bill."""
        key, came = self._model_key(model), came or prompt
        learned: dict[bytes, bytes] = {}
        at, beside = _under(key, prompt.chain[-1]), _under(key, prompt.opening)
        if lesson.anchor is not None and prompt.length and self._anchors.get(at) != lesson.anchor:
            self._anchors.put(at, lesson.anchor)
            learned[came.home + _under(key, came.chain[-1])] = _write(_Billed(at, lesson.anchor))
        if lesson.opening is not None and self._was_asked_for(beside):
            self._openings.put(beside, lesson.opening)
            learned[COMMON + beside] = _write(lesson.opening)
        if learned:
            self._store.later(tenant, Space.ANCHORS, learned, ttl=self._kept())
        if lesson.calibration is not None:
            self._calibrations.put(key, lesson.calibration)
            self._store.later(NOBODY, Space.CALIBRATIONS, {key: _write(lesson.calibration)}, ttl=KEPT)

    def _was_asked_for(self, opening: bytes) -> bool:
        """What may lie in the store unread, from before a restart, is better than what is learned in passing
        from a long conversation.
        """
        return self._openings.get(opening) is not None or self._unopened.get(opening) is not None

    def _newest_anchor(self, key: bytes, prompt: Called) -> _Found:
        for length in range(prompt.length, 0, -1):
            name = _under(key, prompt.chain[length])
            if (anchor := self._anchors.get(name)) is not None:
                return _Found(length, anchor, length)
            if (at := self._searched.get(name)) is not None:
                return _Found(at, self._anchors.get(_under(key, prompt.chain[at])), length)
        return _Found()

    async def _recall(self, tenant: bytes, home: bytes, names: Sequence[bytes], opening: bytes) -> None:
        known = self._openings.get(opening)
        keys = [*(home + name for name in names), COMMON + opening]
        values = await stored(self._store, tenant, Space.ANCHORS, keys)
        found = understood({opening: values.pop(COMMON + opening, b"")}, _read_opening)
        if opening not in found:
            self._unopened.put(opening, True)
        elif self._openings.get(opening) is known:  # nobody has learned while the store was being asked
            self._openings.put(opening, found[opening])
        for billed in understood(values, _read_billed).values():
            self._anchors.put(billed.at, billed.anchor)

    async def _recall_calibration(self, key: bytes) -> None:
        found = await recalled(self._store, NOBODY, Space.CALIBRATIONS, [key], _read_calibration)
        known = self._calibrations.get(key)
        if key not in found:
            self._uncalibrated.put(key, True)
        elif known is None or known.seen < found[key].seen:
            self._calibrations.put(key, found[key])


def _model_key(upstream: bytes, model: str) -> bytes:
    named = b"\0".join([_VERSION, upstream, model.encode(errors="surrogatepass")])
    return blake2b(named, digest_size=DIGEST_SIZE).digest()


def _others_answered(prompt: Called, since: int) -> bool:
    """Did another worker, or this one before a restart, answer some of it? From one request to the next a
    conversation grows by one answer; where it has grown by more, somebody else may have seen a newer bill.
    Of what this process has never seen, even a first message may have been billed: a client tries again.
    """
    return prompt.length > 0 if not since else prompt.roles[since:].count(ANSWERED_BY) > 1


def _under(model_key: bytes, name: bytes) -> bytes:
    return blake2b(model_key + name, digest_size=DIGEST_SIZE).digest()
