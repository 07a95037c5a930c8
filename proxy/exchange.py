"""What is known of one request and its answer, gathered on the way and written down at the end."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter

from proxy.usage import Usage


class Route(StrEnum):
    CHAT = "chat"
    PASSTHROUGH = "passthrough"
    OWN = "own"


class Stage(StrEnum):
    """Where our own time goes; waiting for the client or the upstream is in none of them."""

    PREPARE = "prepare"  # from the request's last byte to the bytes that go upstream
    RELAY = "relay"  # from the answer's head to the bytes that go to the client
    RECORD = "record"  # after the last byte


# Unique among all processes by its beginning, cheap by its end.
_process = secrets.token_hex(5)
_number = itertools.count()


def _next_id() -> str:
    return f"{_process}{next(_number):06x}"


@dataclass(slots=True)
class Size:
    """A chat request's size as it was counted, and the room that there is for it."""

    tokens: int  # that are sent
    received: int
    basis: str
    room: int
    window_origin: str
    seconds: float  # that counting it as it came took
    truncated: bool = False  # did the upstream bill for much less than was sent?


@dataclass(slots=True)
class Exchange:
    method: str
    path: str  # never with its query: that may carry a key
    route: Route
    id: str = field(default_factory=_next_id)
    started: float = field(default_factory=perf_counter)
    first_byte: float | None = None
    model: str | None = None
    streams: bool = False
    status: int = 0
    error: str | None = None  # the code of our own error, or how the exchange was broken off
    upstream_id: str | None = None
    usage: Usage | None = None
    size: Size | None = None
    counting: float = 0.0  # seconds
    avoided: bool = False  # would it have been refused as too long, had it been sent as it came?
    conversation: str | None = None
    actions: Sequence[str] = ()
    warnings: Sequence[str] = ()
    stages: dict[Stage, float] = field(default_factory=dict)

    def spent(self, stage: Stage, since: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + perf_counter() - since
