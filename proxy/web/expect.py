"""`Expect: 100-continue`, answered here: forwarding it would make both sides wait."""

from __future__ import annotations

from aiohttp import web

from proxy.errors import ExpectationFailed


def answer_expectation(request: web.Request) -> None:
    expected = request.headers.get("Expect")
    if expected is None:
        return
    if expected.lower() != "100-continue":
        raise ExpectationFailed("Only Expect: 100-continue is understood.")
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
