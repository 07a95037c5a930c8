"""What the simulator saw: for tests that ask what reached the upstream, and what is still running there."""

from __future__ import annotations

import asyncio
import hashlib
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from proxy.simulator.answers import ApiError
from proxy.simulator.encodings import decoded


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came, byte for byte."""

    method: str
    path: str  # with the query, nothing decoded
    headers: tuple[tuple[bytes, bytes], ...]
    data: bytes | mmap.mmap = field(repr=False)  # a large body lies on disk
    connection: int
    decoded_limit: int = 256 * 2**20

    @property
    def body(self) -> bytes:
        return self.data[:]

    @cached_property
    def body_sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def parsed(self) -> Any:
        """The JSON value of the body, or None."""
        try:
            return self.json()
        except ApiError:
            return None

    def json(self) -> Any:
        plain = decoded(self.body, self.header("content-encoding"), self.decoded_limit)
        try:
            return orjson.loads(plain)
        except orjson.JSONDecodeError as broken:
            raise ApiError(f"We could not parse the JSON body of your request. ({broken})") from broken

    def header(self, name: str, default: str = "") -> str:
        wanted = name.encode()
        return next(
            (value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), default
        )

    def headers_named(self, name: str) -> list[str]:
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == wanted]

    @property
    def route(self) -> str:
        return self.path.partition("?")[0]

    @property
    def credential(self) -> str:
        return self.header("authorization").removeprefix("Bearer ") or self.header("api-key")


class Recorder:
    def __init__(self, *, record: bool, keep: int) -> None:
        self._received: deque[ReceivedRequest] = deque(maxlen=keep if record else 0)
        self._changed = asyncio.Event()
        self.arrived = 0
        self.active = 0
        self.cancelled = 0

    @property
    def requests(self) -> list[ReceivedRequest]:
        return list(self._received)

    def forget(self) -> None:
        self._received.clear()

    @contextmanager
    def handling(self) -> Iterator[None]:
        self.arrived += 1
        self.active += 1
        self._ring()
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += 1
            raise
        finally:
            self.active -= 1
            self._ring()

    def record(self, request: ReceivedRequest) -> None:
        self._received.append(request)
        self._ring()

    async def wait_until(self, condition: Callable[[], bool], timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                await self._changed.wait()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
