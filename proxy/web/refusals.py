"""Errors of ours as answers."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from proxy.errors import TailfoldError


def error_response(error: TailfoldError) -> web.Response:
    return web.Response(
        status=error.status, body=error.body(), content_type="application/json", headers=error.headers
    )


def error_bytes(error: TailfoldError) -> bytes:
    """The same on the wire, for a connection that has no request to answer."""
    body = error.body()
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in error.headers.items()),
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
