"""`Expect: 100-continue`, answered here: forwarding it would make both sides wait."""

from __future__ import annotations

from aiohttp import web

from proxy.errors import TailfoldError
from proxy.web.refusals import error_response


class ExpectationFailed(TailfoldError):
    status = 417
    code = "expectation_failed"


async def expect_handler(request: web.Request) -> web.StreamResponse | None:
    if request.headers.get("Expect", "").lower() != "100-continue":
        response = error_response(ExpectationFailed("Only Expect: 100-continue is understood."))
        response.force_close()
        return response
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return None
