"""Short ways to talk: the SDK at an address, and an upstream whose every byte the test sends itself."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

# Far more than anything here needs: a test that waits so long has found a hang.
PATIENCE = 10.0


@asynccontextmanager
async def sdk(base_url: str, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    chosen: dict[str, Any] = {"api_key": "sk-test", "max_retries": 0, "timeout": PATIENCE, **options}
    async with AsyncOpenAI(base_url=base_url, **chosen) as client:
        yield client


async def asked(client: AsyncOpenAI, body: dict[str, Any], **options: Any) -> ChatCompletion:
    answer: ChatCompletion = await client.chat.completions.create(**body, **options)
    return answer


async def streamed(
    client: AsyncOpenAI,
    body: dict[str, Any],
    heard: list[ChatCompletionChunk] | None = None,
    **options: Any,
) -> list[ChatCompletionChunk]:
    """All chunks of a stream; given a list, what came before a failure is in it."""
    heard = [] if heard is None else heard
    async with await client.chat.completions.create(**body, stream=True, **options) as stream:
        async for chunk in stream:
            heard.append(chunk)
    return heard


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


# The bytes of a stream.


def event(**fields: Any) -> bytes:
    """A chunk in the usual envelope, `fields` on top."""
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    return b"data: " + orjson.dumps({**envelope, **fields}) + b"\n\n"


def delta(text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return event(choices=[choice], **fields)


FINISH = event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
DONE = b"data: [DONE]\n\n"
EVENT_STREAM = ("content-type", "text/event-stream")


def head(status: str, *headers: tuple[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


CHUNKED_STREAM = head("200 OK", EVENT_STREAM, ("transfer-encoding", "chunked"))
LAST_CHUNK = b"0\r\n\r\n"


def framed(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def whole(body: bytes, *headers: tuple[str, str], status: str = "200 OK") -> bytes:
    return head(status, *headers, ("content-length", str(len(body)))) + body


COMPLETION = orjson.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "hand-made"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
)
PLAIN_ANSWER = whole(COMPLETION, ("content-type", "application/json"))


# An upstream without a mind of its own.


@dataclass(frozen=True, slots=True)
class Request:
    head: bytes
    body: bytes


class Peer:
    """A connection as the upstream sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> Request:
        """The next request, whose length is declared if it has a body."""
        received = await self.receive_head()
        lines = received.lower().split(b"\r\n")
        lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        return Request(received, await self.receive(sum(lengths)))

    async def receive_head(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readuntil(b"\r\n\r\n")

    async def receive(self, length: int) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readexactly(length)

    def send(self, *data: bytes) -> None:
        self._writer.write(b"".join(data))

    async def taken(self) -> None:
        """Until what was sent is on its way, more or less; not before the other side reads."""
        await self._writer.drain()

    async def trickle(self, body: bytes, size: int) -> None:
        """A chunked body in pieces that will mostly be read one by one, though nothing may depend on it."""
        for start in range(0, len(body), size):
            self.send(framed(body[start : start + size]))
            await asyncio.sleep(0)
        self.send(LAST_CHUNK)

    async def left(self) -> None:
        """Until the other side has gone."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self._reader.read(65536):
                    pass
            except ConnectionResetError:
                pass  # gone is gone

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass  # the other side was faster

    async def reset(self) -> None:
        sock = self._writer.get_extra_info("socket")
        # With a linger time of zero, closing sends RST in place of FIN.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        await self.close()


class ManualUpstream:
    """`peer = await upstream.accept()`, `await peer.request()`, `peer.send(...)`: the test decides when."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Peer] = asyncio.Queue()
        self._peers: list[Peer] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for peer in self._peers:
            await peer.close()
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._peers.append(peer)
        self._waiting.put_nowait(peer)

    @property
    def connections(self) -> int:
        """How many were opened in all."""
        return len(self._peers)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def accept(self) -> Peer:
        async with asyncio.timeout(PATIENCE):
            return await self._waiting.get()
