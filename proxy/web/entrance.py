"""Which of the three ways a request takes.

aiohttp's router decodes paths before it looks at them and costs several microseconds, so what is forwarded is
told by its raw path, and only Tailfold's own pages are looked up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Entrance:
    chat: Handler
    passthrough: Handler
    nowhere: Handler
    pages: web.Application

    def before(self, router: Callable[[Any], Awaitable[web.StreamResponse]]) -> Callable[[Any], Any]:
        """What the server calls for every request; `router` finds the pages."""

        def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
            path = request.raw_path
            if request.method == "POST" and (path == CHAT or path.startswith(CHAT + "?")):
                return self.chat(request)
            if path.startswith("/v1/"):
                return self.passthrough(request)
            if path.startswith("/") and "Expect" not in request.headers:
                return router(request)
            return self.nowhere(request)  # `*` or the name of another server; no page has anything to expect

        return handle
