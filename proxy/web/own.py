"""Tailfold's own pages: probes, metrics, the start page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files

from aiohttp import web

from proxy import __version__
from proxy.errors import NotFound
from proxy.metrics import CONTENT_TYPE, Metrics
from proxy.web.edge import Edge
from proxy.web.guard import Guard

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class OwnPages:
    def __init__(
        self,
        metrics: Metrics,
        edge: Edge,
        guard: Guard,
        *,
        open_metrics: bool,
        store_trouble: Callable[[], str | None],
    ) -> None:
        self._metrics = metrics
        self._edge = edge
        self._guard = guard
        self._open_metrics = open_metrics
        self._store_trouble = store_trouble
        folder = files("proxy.web") / "dashboard"
        self._page = (folder / "index.html").read_text("utf-8").replace("{version}", __version__)
        self._style = (folder / "style.css").read_text("utf-8")

    def application(self) -> web.Application:
        own = self._edge.own
        app = web.Application()
        app.router.add_get("/healthz", own(self.healthz))
        app.router.add_get("/readyz", own(self.readyz))
        app.router.add_get("/metrics", own(self.metrics))
        app.router.add_get("/ui/", own(self.page))
        app.router.add_get("/ui/style.css", own(self.style))
        app.router.add_route("*", "/{path:(?s:.*)}", own(self.not_found))
        return app

    async def healthz(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": "ok", "name": "tailfold", "version": __version__})

    async def readyz(self, _request: web.Request) -> web.StreamResponse:
        if self._edge.draining:
            return web.json_response({"status": "draining"}, status=503)
        # Requests go on without the store, so this is no reason to send them elsewhere.
        trouble = self._store_trouble()
        store = {"status": "up"} if trouble is None else {"status": "down", "reason": trouble}
        return web.json_response({"status": "ready", "store": store})

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        if not self._open_metrics:
            self._guard.check_token(request)
        # With several workers this reads files, so it stays off the event loop.
        text = await asyncio.to_thread(self._metrics.exposition)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})

    async def page(self, request: web.Request) -> web.StreamResponse:
        self._guard.check_host(request)
        return web.Response(text=self._page, content_type="text/html", headers=_PAGE_HEADERS)

    async def style(self, request: web.Request) -> web.StreamResponse:
        self._guard.check_host(request)
        return web.Response(text=self._style, content_type="text/css", headers=_PAGE_HEADERS)

    async def not_found(self, request: web.Request) -> web.StreamResponse:
        raise NotFound(
            f"There is nothing at {request.raw_path.partition('?')[0][:200]}. "
            "Point your client's base_url at /v1."
        )
