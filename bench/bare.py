"""The yardstick: the shortest honest passthrough of aiohttp's server, aiohttp's client and uvloop.

python -m bench.bare PORT UPSTREAM_ORIGIN
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

HOP_BY_HOP = {"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


async def serve(port: int, origin: str) -> None:
    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        body = await request.read() if request.can_read_body else None
        url = origin + request.raw_path
        async with session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async with ClientSession(
        connector=TCPConnector(limit=0),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        timeout=ClientTimeout(total=None),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    ) as session:
        runner = web.ServerRunner(web.Server(forward, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
