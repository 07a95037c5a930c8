"""HTTP by hand: a client and an upstream that show every byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer as it was on the wire, its framing undone."""

    start: bytes
    headers: Pairs
    body: bytes
    whole: bool = True

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])


async def read_message(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head[:-4].split(b"\r\n")
    headers = [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
    if start.startswith(b"HTTP/1.1 1"):
        return await read_message(reader, bodiless=bodiless)
    message = Message(start, headers, b"")
    if bodiless or start[9:12] in (b"204", b"304"):
        return message
    body, whole = await _read_body(reader, message)
    return Message(start, headers, body, whole)


async def _read_body(reader: asyncio.StreamReader, message: Message) -> tuple[bytes, bool]:
    try:
        if message.values(b"transfer-encoding"):
            return await _read_chunks(reader), True
        if lengths := message.values(b"content-length"):
            return await reader.readexactly(int(lengths[0])), True
    except asyncio.IncompleteReadError as cut:
        return cut.partial, False
    return (await reader.read(), True) if message.start.startswith(b"HTTP/") else (b"", True)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await _chunk_line(reader, body)).split(b";")[0], 16):
        try:
            body += await reader.readexactly(size)
        except asyncio.IncompleteReadError as cut:
            raise asyncio.IncompleteReadError(body + cut.partial, None) from cut
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk without its end")
    while await reader.readline() not in (b"\r\n", b""):
        pass  # trailers
    return body


async def _chunk_line(reader: asyncio.StreamReader, so_far: bytes) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise asyncio.IncompleteReadError(so_far, None)
    return line


@dataclass(slots=True)
class RawUpstream:
    """Answers every request with the bytes of `answer`, piece by piece; closes after it if told to."""

    port: int = 0
    answer: Sequence[bytes] = ()
    close: bool = False
    requests: list[Message] = field(default_factory=list)
    connections: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await read_message(reader))
                for piece in self.answer:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the proxy has closed its end
        finally:
            writer.close()


@asynccontextmanager
async def raw_upstream() -> AsyncIterator[RawUpstream]:
    upstream = RawUpstream()
    server = await asyncio.start_server(upstream._serve, "127.0.0.1", 0, limit=2**22)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class Wire:
    """An open connection to a server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, *, bodiless: bool = False) -> Message:
        return await read_message(self.reader, bodiless=bodiless)

    async def closed(self) -> bytes:
        """What still comes until the other side closes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def wire(port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass  # reset by the server, which is what some tests are about


async def ask(port: int, *pieces: bytes, bodiless: bool = False) -> Message:
    async with wire(port) as connection:
        await connection.send(*pieces)
        return await connection.answer(bodiless=bodiless)


def request(
    method: str = "GET",
    path: str = "/v1/models",
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")
