"""Where below the upstream a request goes."""

from __future__ import annotations

import re

from aiohttp import HttpVersion10, web

from proxy.errors import BadRequest, NotFound

PREFIX = "/v1"

# However it is spelled, a dot segment could lead out of the upstream's base path.
_DOT_SEGMENT = re.compile(r"(?:[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:[/\\;]|%2f|%5c|$)", re.IGNORECASE)


def target_of(request: web.Request) -> bytes:
    """The path below /v1 with its query, byte for byte as the client spelled it."""
    if request.version < HttpVersion10:
        raise BadRequest("HTTP/1.0 or newer is needed.")
    target = request.raw_path
    if not target.startswith(PREFIX + "/"):
        raise NotFound("Only paths that begin with /v1/ are forwarded.")
    if _DOT_SEGMENT.search(target.partition("?")[0]):
        raise BadRequest("A path with dot segments is not forwarded.")
    return target[len(PREFIX) :].encode("utf-8", "surrogateescape")
