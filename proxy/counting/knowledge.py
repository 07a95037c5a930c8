"""What bills have taught so far: in memory for what is in use, in the store for after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TypeVar

import msgspec

from proxy.counting.anchors import Anchor, Known, Lesson, Opening
from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.prompt import DIGEST_SIZE, Prompt
from proxy.ports import NOBODY, Space
from proxy.recent import Recent
from proxy.store.writing import LateWriter

T = TypeVar("T")

ANCHORS = 16 * 1024
MODELS = 1024
KEPT = 30 * 24 * 3600.0
# Asked of the store at a time: a conversation's anchors lie at its end.
_NEWEST = 64

_read_anchor = msgspec.msgpack.Decoder(Anchor).decode
_read_opening = msgspec.msgpack.Decoder(Opening).decode
_read_calibration = msgspec.msgpack.Decoder(Calibration).decode
_write = msgspec.msgpack.Encoder().encode


class Knowledge:
    """Keyed by upstream and model: another server, or another model, bills differently."""

    def __init__(self, upstream: str, store: LateWriter) -> None:
        self._upstream = upstream.encode()
        self._store = store
        self._anchors: Recent[bytes, Anchor] = Recent(ANCHORS)
        self._openings: Recent[bytes, Opening] = Recent(ANCHORS)
        self._unopened: Recent[bytes, bool] = Recent(ANCHORS)  # those of which the store knows nothing
        self._calibrations: Recent[bytes, Calibration] = Recent(MODELS)

    async def known(
        self, tenant: bytes, model: str, prompt: Prompt, factor: float, *, familiar: bool
    ) -> Known:
        key = self._model_key(model)
        calibration = await self._calibration(key, factor)
        at = self._newest_anchor(key, prompt)
        if at is None and not familiar and prompt.length > 1:
            await self._recall(tenant, key, prompt)
            at = self._newest_anchor(key, prompt)
        if at is not None:
            length, anchor = at
            opening = self._openings.get(_under(key, prompt.outside.digest))
            return Known(calibration, anchor, length, opening)
        return Known(calibration, opening=await self._opening(tenant, key, prompt))

    def calibration(self, model: str, factor: float) -> Calibration:
        """The newest that is known without asking the store."""
        return self._calibrations.get(self._model_key(model)) or first_calibration(factor)

    def learn(self, tenant: bytes, model: str, prompt: Prompt, lesson: Lesson) -> None:
        key = self._model_key(model)
        anchors: dict[bytes, bytes] = {}
        if lesson.anchor is not None:
            name = _under(key, prompt.chain[-1])
            if self._anchors.get(name) != lesson.anchor:
                self._anchors.put(name, lesson.anchor)
                anchors[name] = _write(lesson.anchor)
        if lesson.opening is not None:
            name = _under(key, prompt.outside.digest)
            self._openings.put(name, lesson.opening)
            anchors[name] = _write(lesson.opening)
        if anchors:
            self._store.later(tenant, Space.ANCHORS, anchors, ttl=KEPT)
        if lesson.calibration is not None:
            self._calibrations.put(key, lesson.calibration)
            self._store.later(NOBODY, Space.CALIBRATIONS, {key: _write(lesson.calibration)}, ttl=KEPT)

    def _model_key(self, model: str) -> bytes:
        named = self._upstream + b"\0" + model.encode(errors="surrogatepass")
        return blake2b(named, digest_size=DIGEST_SIZE).digest()

    def _newest_anchor(self, key: bytes, prompt: Prompt) -> tuple[int, Anchor] | None:
        for length in range(prompt.length, 0, -1):
            if (anchor := self._anchors.get(_under(key, prompt.chain[length]))) is not None:
                return length, anchor
        return None

    async def _recall(self, tenant: bytes, key: bytes, prompt: Prompt) -> None:
        names = [_under(key, value) for value in prompt.chain[1:][-_NEWEST:]]
        for name, anchor in (await self._read(tenant, Space.ANCHORS, names, _read_anchor)).items():
            self._anchors.put(name, anchor)

    async def _opening(self, tenant: bytes, key: bytes, prompt: Prompt) -> Opening | None:
        name = _under(key, prompt.outside.digest)
        if (opening := self._openings.get(name)) is not None or self._unopened.get(name):
            return opening
        stored = await self._read(tenant, Space.ANCHORS, [name], _read_opening)
        if name in stored:
            self._openings.put(name, stored[name])
        else:
            self._unopened.put(name, True)
        return stored.get(name)

    async def _calibration(self, key: bytes, factor: float) -> Calibration:
        if (calibration := self._calibrations.get(key)) is None:
            stored = await self._read(NOBODY, Space.CALIBRATIONS, [key], _read_calibration)
            # Somebody may have learned while the store was being asked.
            calibration = self._calibrations.get(key) or stored.get(key) or first_calibration(factor)
            self._calibrations.put(key, calibration)
        return calibration

    async def _read(
        self, tenant: bytes, space: Space, keys: list[bytes], read: Callable[[bytes], T]
    ) -> Mapping[bytes, T]:
        found = {}
        for key, value in (await self._store.get(tenant, space, keys)).items():
            try:
                found[key] = read(value)
            except msgspec.MsgspecError:
                continue  # of another version: learned anew, and written over
        return found


def _under(model_key: bytes, name: bytes) -> bytes:
    return blake2b(model_key + name, digest_size=DIGEST_SIZE).digest()
