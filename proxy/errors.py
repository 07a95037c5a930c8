"""Errors of ours, and the one shape in which a client sees them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson


class TailfoldError(Exception):
    """Something Tailfold itself has to tell a client; the upstream's own errors pass untouched."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        return error_body(self.message, self.code)


def error_body(message: str, code: str, param: str | None = None) -> bytes:
    """OpenAI's error shape, so that every SDK shows our message as it shows OpenAI's."""
    return orjson.dumps(
        {"error": {"message": message, "type": "tailfold_error", "param": param, "code": code}}
    )


# What the client sent cannot be taken.


class BadRequest(TailfoldError):
    status = 400
    code = "bad_request"


class Unauthorized(TailfoldError):
    status = 401
    code = "unauthorized"


class ForbiddenHost(TailfoldError):
    status = 403
    code = "forbidden_host"


class NotFound(TailfoldError):
    status = 404
    code = "not_found"


class RequestTooSlow(TailfoldError):
    status = 408
    code = "request_timeout"


class BodyTooLarge(TailfoldError):
    status = 413
    code = "request_too_large"


class ExpectationFailed(TailfoldError):
    status = 417
    code = "expectation_failed"


class HeadTooLarge(TailfoldError):
    status = 431
    code = "head_too_large"


class NotSupported(TailfoldError):
    status = 501
    code = "not_supported"


# Tailfold is full or leaving.


class Overloaded(TailfoldError):
    status = 503
    code = "overloaded"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": "1"})


class ShuttingDown(TailfoldError):
    status = 503
    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("Tailfold is shutting down; try again.", headers={"Retry-After": "1"})


# The upstream could not be asked, or did not answer.


class UpstreamError(TailfoldError):
    status = 502
    code = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    code = "upstream_unreachable"


class UpstreamTlsFailed(UpstreamError):
    code = "upstream_tls_failed"


class UpstreamDisconnected(UpstreamError):
    """The connection ended before the whole answer was there."""

    code = "upstream_disconnected"


class UpstreamProtocolError(UpstreamError):
    """What came back is not HTTP as we can relay it."""

    code = "upstream_protocol_error"


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"
