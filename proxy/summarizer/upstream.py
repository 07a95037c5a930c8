"""Asking the upstream that the conversation itself goes to.

The call is made with the caller's own credential, which is used for it and forgotten. Which model writes is
the cheap one of the conversation's provider, or the conversation's own where that one is not served.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import replace

import orjson
import structlog

from proxy.decoding import NotDecodable
from proxy.errors import TailfoldError
from proxy.headers import Headers, first
from proxy.identify import Tenants
from proxy.recent import Recent
from proxy.summarizer.forms import Form, Forms, Refused
from proxy.summarizer.wanted import (
    TOO_LONG,
    SummaryFailed,
    SummaryRefused,
    Wanted,
    Written,
    pause_in,
    reason_of,
    written_in,
)
from proxy.upstream import Answer, Outgoing, TooLarge, Upstream, whole_body
from proxy.windows.overflow import longest_answer, out_of_window

log = structlog.get_logger("tailfold")

_CHAT = b"/chat/completions"
_OURS: Headers = [
    (b"Content-Type", b"application/json"),
    (b"Accept", b"application/json"),
    (b"Accept-Encoding", b"gzip"),
    (b"User-Agent", b"tailfold"),  # some hosts take a request without one for a robot's
]
_MOST_BYTES = 4 * 1024 * 1024
# Not this model, but perhaps another.
_REFUSALS = frozenset({400, 403, 404, 413, 422})
_NOT_SERVED = frozenset({403, 404})
_CALLERS = 1024
_ASKED_AGAIN_AFTER = 3600.0


class UpstreamSummarizer:
    def __init__(
        self,
        upstream: Upstream,
        *,
        temperature: float | None,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._temperature = temperature
        self._timeout = timeout
        self._forms = Forms()
        self._not_served = _NotServed(clock)

    async def write(self, wanted: Wanted) -> Written:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._by_the_first_that_is_served(wanted)
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        except Refused as refused:
            raise SummaryRefused(refused.reason, window=refused.window) from None
        except TailfoldError as failure:
            raise SummaryFailed(failure.code) from failure

    async def _by_the_first_that_is_served(self, wanted: Wanted) -> Written:
        preferred = wanted.preferred
        if preferred in (None, wanted.model) or self._not_served.to(wanted, preferred):
            return await self._by(wanted.model, wanted)
        try:
            return await self._by(preferred, wanted)
        except Refused as refused:
            if refused.window is not None:
                raise  # it will write when it is told less at a time
            if isinstance(refused, _ModelRefused):
                self._not_served.remember(wanted, preferred)
            log.info(
                "summary model refuses, asking the conversation's own",
                model=preferred[:128],
                reason=refused.reason,
            )
            return await self._by(wanted.model, wanted)

    async def _by(self, model: str, wanted: Wanted) -> Written:
        return await self._forms.ask(model, wanted, lambda form: self._asked(model, wanted, form))

    async def _asked(self, model: str, wanted: Wanted, form: Form) -> Written:
        target = _CHAT + b"?" + wanted.query if wanted.query else _CHAT
        body = orjson.dumps(
            {
                "model": model,
                **form.fields(wanted, self._temperature),
                "messages": orjson.Fragment(form.messages(wanted)),
            }
        )
        answer = await self._upstream.send(Outgoing(b"POST", target, [*wanted.credentials, *_OURS], body))
        try:
            return await _written(answer, model)
        finally:
            answer.close()


async def _written(answer: Answer, model: str) -> Written:
    if answer.status == 200:
        said = await _said(answer)
        # Some gateways put a refusal into an answer that began well.
        if (too_long := _out_of_window(answer.status, said)) is not None:
            raise too_long
        return replace(written_in(_parsed(said), model), in_callers_name=True)
    if answer.status not in _REFUSALS:
        raise SummaryFailed(reason_of(answer.status), pause_in(first(answer.headers, b"retry-after")))
    raise _refused(answer.status, await _said(answer))


async def _said(answer: Answer) -> bytes:
    try:
        return await whole_body(answer, _MOST_BYTES)
    except (TooLarge, NotDecodable) as broken:
        raise SummaryFailed("unreadable") from broken


def _parsed(said: bytes) -> object:
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as broken:
        raise SummaryFailed("unreadable") from broken


class _ModelRefused(Refused):
    """The model is not there, or not for this caller."""


def _refused(status: int, said: bytes) -> Refused:
    if (too_long := _out_of_window(status, said)) is not None:
        return too_long
    if status == 413:
        return Refused(TOO_LONG, "")
    text, answer = said.decode(errors="replace"), longest_answer(_meant(said))
    if status in _NOT_SERVED or (answer is None and "model" in text.lower()):
        return _ModelRefused(reason_of(status), text)
    return Refused(reason_of(status), text, answer=answer)


def _out_of_window(status: int, said: bytes) -> Refused | None:
    refused = out_of_window(status, _meant(said))
    return None if refused is None else Refused(TOO_LONG, "", window=refused.limit)


def _meant(said: bytes) -> object:
    try:
        return _parsed(said)
    except SummaryFailed:
        return None  # a page for people


class _NotServed:
    """Which models were refused to whom: another caller's key may open them, and so may this one's later."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Callers by a name that holds in this process only, as keys themselves are not kept.
        self._callers = Tenants(secrets.token_bytes(32))
        self._until: Recent[tuple[bytes, str], float] = Recent(_CALLERS)

    def to(self, wanted: Wanted, model: str) -> bool:
        return self._clock() < (self._until.get(self._key(wanted, model)) or 0.0)

    def remember(self, wanted: Wanted, model: str) -> None:
        self._until.put(self._key(wanted, model), self._clock() + _ASKED_AGAIN_AFTER)

    def _key(self, wanted: Wanted, model: str) -> tuple[bytes, str]:
        return self._callers.of(wanted.credentials, b"?" + wanted.query), model
