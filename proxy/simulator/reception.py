"""Taking in a request whole: small bodies in memory, large ones on disk."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from collections.abc import AsyncIterator

from aiohttp import web

from proxy.simulator.answers import ApiError
from proxy.simulator.config import SimulatorConfig

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def received_body(request: web.BaseRequest, config: SimulatorConfig) -> bytes | mmap.mmap:
    _invite(request)
    arriving = _chunks(request, config.max_body)
    chunks: list[bytes] = []
    length = 0
    async for chunk in arriving:
        chunks.append(chunk)
        length += len(chunk)
        if length > config.memory_limit:
            return await _spooled(chunks, arriving)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _invite(request: web.BaseRequest) -> None:
    # aiohttp's application answers Expect; its bare server, which we use, leaves that to the handler.
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(CONTINUE)


async def _chunks(request: web.BaseRequest, limit: int) -> AsyncIterator[bytes]:
    length = 0
    try:
        async for chunk in request.content.iter_any():
            length += len(chunk)
            if length > limit:
                raise ApiError("The request body is too large.", status=413)
            yield chunk
    except web.RequestPayloadError as cut:
        raise ConnectionResetError("the client left before the end of its request") from cut


async def _spooled(beginning: list[bytes], rest: AsyncIterator[bytes]) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.writelines(beginning)
        async for chunk in rest:
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
