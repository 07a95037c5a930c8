"""Asking a model for a summary, at the upstream that the conversation itself goes to.

The call is made with the caller's own credential, which is used for it and forgotten. Which model writes is
the cheap one of the conversation's provider, or the conversation's own where that one is not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog

from proxy.decoding import NotDecodable
from proxy.errors import UpstreamError
from proxy.headers import Headers, first
from proxy.recent import Recent
from proxy.upstream import Answer, Outgoing, TooLarge, Upstream, whole_body
from proxy.usage import Usage, usage_from

log = structlog.get_logger("tailfold")

_CHAT = b"/chat/completions"
_MOST_BYTES = 4 * 1024 * 1024
_LONGEST_PAUSE = 3600.0
# The same call in another form: without a temperature, with the other name for the answer's length, or both.
_MOST_FORMS = 3
_MODELS = 256

# Not this model, but perhaps another.
_NOT_SERVED = frozenset({400, 403, 404, 422})


class SummaryFailed(Exception):
    """`reason` is a word for the log and a metric; `pause` is what the upstream has asked for."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


class _NotServed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be summed up, as the messages of a chat request."""

    messages: bytes  # their JSON array
    most_tokens: int
    model: str  # the conversation's own
    preferred: str | None  # the one to ask first
    credentials: Headers


@dataclass(frozen=True, slots=True)
class Written:
    message: dict[str, Any]  # the assistant's, as it came: whether it is a summary is judged elsewhere
    finish_reason: str | None
    model: str
    usage: Usage | None


class Summarizer(Protocol):
    async def write(self, wanted: Wanted) -> Written:
        """Raises SummaryFailed."""
        ...


@dataclass(frozen=True, slots=True)
class _Form:
    """How a model wants to be asked. OpenAI's reasoning models take neither of the two as others do."""

    temperature: bool = True
    limit_name: str = "max_tokens"


class UpstreamSummarizer:
    def __init__(self, upstream: Upstream, *, temperature: float | None, timeout: float) -> None:
        self._upstream = upstream
        self._temperature = temperature
        self._timeout = timeout
        self._forms: Recent[str, _Form] = Recent(_MODELS)
        self._not_served: Recent[str, bool] = Recent(_MODELS)

    async def write(self, wanted: Wanted) -> Written:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._by_the_first_that_is_served(wanted)
        except TimeoutError:
            raise SummaryFailed("timeout") from None
        except UpstreamError as failure:
            raise SummaryFailed(failure.code) from failure

    async def _by_the_first_that_is_served(self, wanted: Wanted) -> Written:
        for model in self._models(wanted):
            try:
                return await self._by(model, wanted)
            except _NotServed:
                if model != wanted.model:
                    self._not_served.put(model, True)
                    log.info("summary model not served, asking the conversation's own", model=model[:128])
        raise SummaryFailed("refused")

    def _models(self, wanted: Wanted) -> Iterator[str]:
        if wanted.preferred not in (None, wanted.model) and not self._not_served.get(wanted.preferred):
            yield wanted.preferred
        yield wanted.model

    async def _by(self, model: str, wanted: Wanted) -> Written:
        form = self._forms.get(model) or _Form()
        for _ in range(_MOST_FORMS):
            status, body = await self._asked(
                _body(model, wanted, form, self._temperature), wanted.credentials
            )
            if status == 200:
                self._forms.put(model, form)
                return _written(body, model)
            other = _other_form(form, body)
            if status not in _NOT_SERVED or other == form:
                raise _NotServed
            form = other
        raise _NotServed

    async def _asked(self, body: bytes, credentials: Headers) -> tuple[int, object]:
        headers: Headers = [
            *credentials,
            (b"Content-Type", b"application/json"),
            (b"Accept-Encoding", b"gzip"),
        ]
        answer = await self._upstream.send(Outgoing(b"POST", _CHAT, headers, body))
        try:
            if answer.status != 200 and answer.status not in _NOT_SERVED:
                raise SummaryFailed(f"status_{answer.status}", _pause(answer))
            return answer.status, orjson.loads(await whole_body(answer, _MOST_BYTES))
        except (TooLarge, NotDecodable, orjson.JSONDecodeError) as broken:
            raise SummaryFailed("unreadable") from broken
        finally:
            answer.close()


def _body(model: str, wanted: Wanted, form: _Form, temperature: float | None) -> bytes:
    fields: dict[str, Any] = {"model": model, form.limit_name: wanted.most_tokens}
    if form.temperature and temperature is not None:
        fields["temperature"] = temperature
    fields["messages"] = orjson.Fragment(wanted.messages)
    return orjson.dumps(fields)


def _other_form(form: _Form, refusal: object) -> _Form:
    """What the refusal names is asked for in another way; the same form where it names neither."""
    error = refusal.get("error") if isinstance(refusal, dict) else None
    said = str(error.get("message") if isinstance(error, dict) else error)
    if "max_completion_tokens" in said and form.limit_name == "max_tokens":
        return _Form(form.temperature, "max_completion_tokens")
    if "temperature" in said and form.temperature:
        return _Form(False, form.limit_name)
    return form


def _written(body: object, model: str) -> Written:
    match body:
        case {"choices": [{"message": dict(message)} as choice, *_]}:
            reason = choice.get("finish_reason")
            return Written(message, reason if isinstance(reason, str) else None, model, usage_from(body))
    raise SummaryFailed("unreadable")


def _pause(answer: Answer) -> float | None:
    """`Retry-After` in seconds; its other form, a date, is for pages and not for APIs."""
    try:
        seconds = float(first(answer.headers, b"retry-after") or b"")
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE) if seconds >= 0 else None
