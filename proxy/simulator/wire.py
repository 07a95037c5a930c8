"""How an answer becomes bytes on a connection.

`script()` turns an answer into steps without doing anything; `perform()` does the steps without deciding
anything. A fault is a different list of steps. We write past aiohttp's own response, because a server that
always frames its answers well cannot be told to frame them badly.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from proxy.simulator.answers import Answer, Framing, Header, Piece


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Until:
    event: asyncio.Event


class Ending(Enum):
    CLOSE = auto()
    RESET = auto()
    HANG = auto()  # until the client leaves or the simulator stops


Step = Piece | Pause | Until | Ending


@dataclass(frozen=True, slots=True)
class Script:
    """Steps to perform word for word, well-formed or not."""

    steps: tuple[Step, ...]


def script(answer: Answer, *, head_only: bool = False, keep_alive: bool = True) -> Iterator[Step]:
    if head_only or _never_has_a_body(answer.status):
        yield head(answer, keep_alive)
    elif answer.framing is Framing.LENGTH and len(answer.pieces) == 1:
        yield head(answer, keep_alive) + answer.pieces[0]
    else:
        yield head(answer, keep_alive)
        yield from framed_pieces(answer)
        if answer.framing is Framing.CHUNKED:
            yield b"0\r\n" + _header_lines(answer.trailers) + b"\r\n"
    if answer.framing is Framing.CLOSE:
        yield Ending.CLOSE


def head(answer: Answer, keep_alive: bool = True) -> bytes:
    reason = _reason(answer.status) if answer.reason is None else answer.reason
    lines = [f"HTTP/1.1 {answer.status} {reason}"]
    lines += [f"{name}: {value}" for name, value in (*answer.headers, *_framing_headers(answer))]
    if answer.framing is Framing.CLOSE or not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def framed_pieces(answer: Answer) -> Iterator[Step]:
    for number, piece in enumerate(answer.pieces):
        if number:
            yield Pause(answer.pause)
        if piece:  # an empty chunk would end the body
            yield framed(piece, answer.framing)


def framed(piece: Piece, framing: Framing) -> Piece:
    return b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if framing is Framing.CHUNKED else piece


def _framing_headers(answer: Answer) -> tuple[Header, ...]:
    named = {name.lower() for name, _ in answer.headers}
    if "content-length" in named or "transfer-encoding" in named or _never_has_a_body(answer.status):
        return ()
    match answer.framing:
        case Framing.LENGTH:
            return (("content-length", str(answer.length)),)
        case Framing.CHUNKED:
            return (("transfer-encoding", "chunked"),)
        case Framing.CLOSE:
            return ()


def _header_lines(headers: Iterable[Header]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")


def _never_has_a_body(status: int) -> bool:
    return status in (204, 304) or status < 200


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


class Sent(web.StreamResponse):
    """What aiohttp is handed back: the answer is on the wire already."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._stays_open = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


async def perform(steps: Iterable[Step], request: web.BaseRequest, stopping: asyncio.Event) -> Sent:
    for step in steps:
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Until(event):
                await event.wait()
            case Ending.HANG:
                await stopping.wait()
                return Sent(keep_alive=False)
            case Ending.RESET:
                _reset(_open_transport(request))
                return Sent(keep_alive=False)
            case Ending.CLOSE:
                return Sent(keep_alive=False)
            case bytes() | memoryview():
                _open_transport(request).write(step)
                await request.writer.drain()
    return Sent(keep_alive=request.keep_alive)


def _open_transport(request: web.BaseRequest) -> asyncio.Transport:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has left")
    return transport


def _reset(transport: asyncio.Transport) -> None:
    # With a linger time of zero, closing sends RST in place of FIN.
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    transport.abort()
