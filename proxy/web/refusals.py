"""Errors of ours as answers."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from proxy.errors import TailfoldError
from proxy.headers import Headers, head_bytes

# Said so that aiohttp does not say it, with the versions of everything.
SERVER = "tailfold"


def error_response(error: TailfoldError) -> web.Response:
    headers = {"Server": SERVER, **error.headers}
    return web.Response(
        status=error.status, body=error.body(), content_type="application/json", headers=headers
    )


def error_bytes(error: TailfoldError) -> bytes:
    """The same on the wire, for a connection that is closed with it."""
    line = b"HTTP/1.1 %d %b" % (error.status, reason_of(error))
    return head_bytes(line, [*error_headers(error), (b"Connection", b"close")]) + error.body()


def error_headers(error: TailfoldError) -> Headers:
    more = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    length = b"%d" % len(error.body())
    return [(b"Content-Type", b"application/json"), (b"Content-Length", length), *more]


def reason_of(error: TailfoldError) -> bytes:
    return HTTPStatus(error.status).phrase.encode()
