"""A wire between a process and its Valkey that counts what goes over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

_PIECE = 2**20


@dataclass(frozen=True, slots=True)
class Traffic:
    """Up to a moment; one less another is what went over in between."""

    trips: int = 0  # pieces that were sent to the store: what is sent at once is one
    commands: int = 0
    asked: int = 0  # bytes
    answered: int = 0

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(
            self.trips - before.trips,
            self.commands - before.commands,
            self.asked - before.asked,
            self.answered - before.answered,
        )

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.trips + other.trips,
            self.commands + other.commands,
            self.asked + other.asked,
            self.answered + other.answered,
        )


class Commands:
    """How many begin in a stream of them: each is an array of strings, `*1 CRLF $4 CRLF PING CRLF`."""

    def __init__(self) -> None:
        self._left = b""
        self._arguments = 0  # of the command that has begun

    def begun_in(self, piece: bytes) -> int:
        data, position, begun = self._left + piece, 0, 0
        while (line_end := data.find(b"\r\n", position)) >= 0:
            number = int(data[position + 1 : line_end])
            following = line_end + 2
            if self._arguments:
                following += number + 2
                if following > len(data):
                    break
                self._arguments -= 1
            else:
                self._arguments = number
                begun += 1
            position = following
        self._left = data[position:]
        return begun


class Wire:
    def __init__(self, port: int) -> None:
        self.traffic = Traffic()
        self._port = port  # of the store
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        commands = Commands()

        def asked(piece: bytes) -> None:
            self.traffic += Traffic(1, commands.begun_in(piece), len(piece))

        def answered(piece: bytes) -> None:
            self.traffic += Traffic(answered=len(piece))

        await asyncio.gather(_carry(reader, back, asked), _carry(there, writer, answered))


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Callable[[bytes], None]
) -> None:
    try:
        while piece := await reader.read(_PIECE):
            seen(piece)
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # either end may leave
    finally:
        writer.close()
