"""What bills have taught so far: in memory for what is in use, in the store for after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b

import msgspec

from proxy.counting.anchors import Anchor, Known, Lesson, Opening
from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.prompt import ANSWERED_BY, DIGEST_SIZE, Prompt
from proxy.counting.recalling import recalled, stored, understood
from proxy.ports import NOBODY, Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

ANCHORS = 16 * 1024
MODELS = 1024
KEPT = 30 * 24 * 3600.0
# Asked of the store at a time: a conversation's anchors lie at its end.
_NEWEST = 64

# Raised whenever stored values would mean something else: what was stored before is not found then.
_VERSION = b"2"

_read_anchor = msgspec.msgpack.Decoder(Anchor).decode
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

    def __init__(self, upstream: str, store: LateWriter) -> None:
        # Asked for several times per request, and always for the same few models.
        self._model_key = lru_cache(MODELS)(partial(_model_key, upstream.encode()))
        self._store = store
        self._anchors: Recent[bytes, Anchor] = Recent(ANCHORS)
        self._searched: Recent[bytes, int] = Recent(ANCHORS)  # requests; up to where they were anchored
        self._openings: Recent[bytes, Opening] = Recent(ANCHORS)
        self._unopened: Recent[bytes, bool] = Recent(ANCHORS)  # those of which the store knows nothing
        self._calibrations: Recent[bytes, Calibration] = Recent(MODELS)

    async def known(self, tenant: bytes, model: str, prompt: Prompt, factor: float) -> Known:
        key = self._model_key(model)
        calibration = await self._calibration(key, factor)
        found = self._newest_anchor(key, prompt)
        if _others_answered(prompt, found.searched):
            await self._recall(tenant, key, prompt, found.searched)
            found = self._newest_anchor(key, prompt)
        self._searched.put(_under(key, prompt.chain[-1]), found.length)
        if found.anchor is not None:
            opening = self._openings.get(_under(key, prompt.outside.digest))
            return Known(calibration, found.anchor, found.length, opening)
        return Known(calibration, opening=await self._opening(tenant, key, prompt))

    def calibration(self, model: str, factor: float) -> Calibration:
        """The newest that is known without asking the store."""
        return self._calibrations.get(self._model_key(model)) or first_calibration(factor)

    def opening(self, model: str, prompt: Prompt) -> Opening | None:
        """Likewise."""
        return self._openings.get(_under(self._model_key(model), prompt.outside.digest))

    def learn(self, tenant: bytes, model: str, prompt: Prompt, lesson: Lesson) -> None:
        key = self._model_key(model)
        learned: dict[bytes, bytes] = {}
        at, beside = _under(key, prompt.chain[-1]), _under(key, prompt.outside.digest)
        if lesson.anchor is not None and prompt.length and self._anchors.get(at) != lesson.anchor:
            self._anchors.put(at, lesson.anchor)
            learned[at] = _write(lesson.anchor)
        if lesson.opening is not None and self._was_asked_for(beside):
            self._openings.put(beside, lesson.opening)
            learned[beside] = _write(lesson.opening)
        if learned:
            self._store.later(tenant, Space.ANCHORS, learned, ttl=KEPT)
        if lesson.calibration is not None:
            self._calibrations.put(key, lesson.calibration)
            self._store.later(NOBODY, Space.CALIBRATIONS, {key: _write(lesson.calibration)}, ttl=KEPT)

    def _was_asked_for(self, opening: bytes) -> bool:
        """What may lie in the store unread, from before a restart, is better than what is learned in passing
        from a long conversation.
        """
        return self._openings.get(opening) is not None or self._unopened.get(opening) is not None

    def _newest_anchor(self, key: bytes, prompt: Prompt) -> _Found:
        for length in range(prompt.length, 0, -1):
            name = _under(key, prompt.chain[length])
            if (anchor := self._anchors.get(name)) is not None:
                return _Found(length, anchor, length)
            if (at := self._searched.get(name)) is not None:
                return _Found(at, self._anchors.get(_under(key, prompt.chain[at])), length)
        return _Found()

    async def _recall(self, tenant: bytes, key: bytes, prompt: Prompt, since: int) -> None:
        names = [_under(key, value) for value in prompt.chain[since + 1 :][-_NEWEST:]]
        # Most conversations that begin are new and need their opening next: asked for in the same breath.
        opening = [_under(key, prompt.outside.digest)] if prompt.length == 1 else []
        opening = [name for name in opening if not self._was_asked_for(name)]
        values = await stored(self._store, tenant, Space.ANCHORS, [*names, *opening])
        for name in opening:
            self._recall_opening(name, values)
        anchors = {name: values[name] for name in names if name in values}
        for name, anchor in understood(anchors, _read_anchor).items():
            self._anchors.put(name, anchor)

    async def _opening(self, tenant: bytes, key: bytes, prompt: Prompt) -> Opening | None:
        name = _under(key, prompt.outside.digest)
        if (opening := self._openings.get(name)) is not None or self._unopened.get(name):
            return opening
        self._recall_opening(name, await stored(self._store, tenant, Space.ANCHORS, [name]))
        return self._openings.get(name)

    def _recall_opening(self, name: bytes, values: Mapping[bytes, bytes]) -> None:
        found = understood({name: values[name]} if name in values else {}, _read_opening)
        if name not in found:
            self._unopened.put(name, True)
        elif self._openings.get(name) is None:  # somebody may have learned while the store was being asked
            self._openings.put(name, found[name])

    async def _calibration(self, key: bytes, factor: float) -> Calibration:
        if (calibration := self._calibrations.get(key)) is None:
            found = await recalled(self._store, NOBODY, Space.CALIBRATIONS, [key], _read_calibration)
            # Somebody may have learned while the store was being asked.
            calibration = self._calibrations.get(key) or found.get(key) or first_calibration(factor)
            self._calibrations.put(key, calibration)
        return calibration


def _model_key(upstream: bytes, model: str) -> bytes:
    named = b"\0".join([_VERSION, upstream, model.encode(errors="surrogatepass")])
    return blake2b(named, digest_size=DIGEST_SIZE).digest()


def _others_answered(prompt: Prompt, since: int) -> bool:
    """Did another worker, or this one before a restart, answer some of it? From one request to the next a
    conversation grows by one answer; where it has grown by more, somebody else may have seen a newer bill.
    Of what this process has never seen, even a first message may have been billed: a client tries again.
    """
    return prompt.length > 0 if not since else prompt.roles[since:].count(ANSWERED_BY) > 1


def _under(model_key: bytes, name: bytes) -> bytes:
    return blake2b(model_key + name, digest_size=DIGEST_SIZE).digest()
