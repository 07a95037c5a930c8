"""What the simulator says, as values: nothing here touches a socket."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import orjson

Header = tuple[str, str]
Piece = bytes | memoryview


class Framing(Enum):
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"  # the body ends where the connection ends


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, piece by piece; headers are text in latin-1, so any byte can be said."""

    status: int = 200
    headers: tuple[Header, ...] = ()
    pieces: tuple[Piece, ...] = ()
    framing: Framing = Framing.LENGTH
    pause: float = 0.0  # seconds between two pieces
    trailers: tuple[Header, ...] = field(default=(), kw_only=True)
    reason: str | None = field(default=None, kw_only=True)

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))

    def with_headers(self, *headers: Header) -> Answer:
        return replace(self, headers=(*self.headers, *headers))


class ApiError(Exception):
    """A refusal in OpenAI's shape."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | int | None = None,
        headers: tuple[Header, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.error = {"message": message, "type": kind, "param": param, "code": code}

    def answer(self) -> Answer:
        return json_answer({"error": self.error}, self.status).with_headers(*self.headers)


def json_answer(value: Any, status: int = 200) -> Answer:
    return Answer(status, (("content-type", "application/json"),), (orjson.dumps(value),))


def event_stream(events: Iterable[bytes], pause: float) -> Answer:
    headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
    pieces = tuple(b"data: " + event + b"\n\n" for event in events)
    return Answer(200, headers, pieces, Framing.CHUNKED, pause)


def requested_answer(wish: str) -> Answer:
    """The answer that an `x-sim-respond` header describes.

    JSON with any of `status`, `reason`, `headers` and `trailers` (lists of pairs), `body` (base64) or
    `pieces` (list of base64), `chunked` (true or false) or `framing` (length, chunked, close), `pause`.
    """
    try:
        described = orjson.loads(wish)
        pieces = described["pieces"] if "pieces" in described else [described.get("body", "")]
        chunked = Framing.CHUNKED if described.get("chunked") else Framing.LENGTH
        return Answer(
            status=int(described.get("status", 200)),
            headers=_pairs(described.get("headers", ())),
            pieces=tuple(base64.b64decode(piece, validate=True) for piece in pieces),
            framing=Framing(described["framing"]) if "framing" in described else chunked,
            pause=float(described.get("pause", 0.0)),
            trailers=_pairs(described.get("trailers", ())),
            reason=described.get("reason"),
        )
    except (ValueError, TypeError, AttributeError) as broken:
        raise ApiError(f"x-sim-respond is not understood: {broken}", param="x-sim-respond") from broken


def _pairs(described: Iterable[tuple[str, str]]) -> tuple[Header, ...]:
    return tuple((name, value) for name, value in described)
