"""Asking the upstream about itself: in the background, seldom, and never on a request's way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import structlog

from proxy.decoding import NotDecodable, decoder_for
from proxy.errors import TailfoldError
from proxy.headers import Headers, first
from proxy.recent import Recent
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.upstream import Outgoing, Upstream
from proxy.windows import said
from proxy.windows.kept import Kept
from proxy.windows.said import Said

log = structlog.get_logger("tailfold")

MODELS = 1024
AGAIN_AFTER = 3600.0
# After an answer that told nothing, the first time, the second, and ever after.
_PAUSES = (60.0, 300.0, 1800.0, AGAIN_AFTER)
_TIME_LIMIT = 15.0
_MOST_BYTES = 8 * 1024 * 1024  # OpenRouter's list has hundreds of kilobytes

# They say nothing of windows, and paths of other servers would be noise to them.
_SAY_NOTHING = (
    "api.openai.com",
    ".openai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
)


class _Question(NamedTuple):
    method: bytes
    path: bytes
    body: Callable[[str], bytes] | None
    answered_in: Callable[[object, str], Said | None]


def _naming_it(model: str) -> bytes:
    return orjson.dumps({"model": model})


@dataclass(frozen=True, slots=True)
class _Known:
    said: Said | None = None
    due: float = 0.0
    failures: int = 0


class Asking:
    """`server` is the upstream's root: much of what is asked lies beside the API, not below it."""

    def __init__(
        self,
        server: Upstream,
        upstream: str,
        store: LateWriter,
        tasks: Tasks,
        *,
        clock: Callable[[], float] = time.time,
        time_limit: float = _TIME_LIMIT,
    ) -> None:
        self._server = server
        self._tasks = tasks
        self._clock = clock
        self._time_limit = time_limit
        self._silent = _says_nothing(upstream)
        self._questions = _questions(urlsplit(upstream).path.rstrip("/").encode())
        self._kept = Kept(Said, upstream, b"said", store)
        self._known: Recent[str, _Known] = Recent(MODELS)
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def said_of(self, model: str) -> Said | None:
        known = self._known.get(model)
        return known.said if known is not None else None

    async def recall(self, model: str) -> None:
        """What was said before this process began; asked of the store once per model."""
        if self._known.get(model) is None:
            stored = _Known(await self._kept.read(model))
            self._known.put(model, self._known.get(model) or stored)

    def about(self, model: str, credentials: Headers) -> None:
        """Returns at once. The credentials are the caller's, and used for this one time."""
        known = self._known.get(model) or _Known()
        if self._silent or not model or model in self._under_way or self._clock() < known.due:
            return
        task = self._tasks.start(self._ask(model, known, credentials), name="ask about a window")
        self._under_way[model] = task
        task.add_done_callback(lambda _: self._under_way.pop(model, None))

    async def finished(self) -> None:
        """Wait for what is being asked now."""
        if self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def _ask(self, model: str, known: _Known, credentials: Headers) -> None:
        found: Said | None = None
        try:
            async with asyncio.timeout(self._time_limit):
                found = await self._first_answer(model, credentials)
        except TimeoutError:
            log.debug("the upstream does not say how large its windows are", reason="no answer in time")
        self._known.put(model, self._after(known, found))
        if found is not None and found != known.said:
            self._kept.write(model, found)
            log.info("the upstream says how large a window is", model=model[:128], window=found.window)

    def _after(self, known: _Known, found: Said | None) -> _Known:
        now = self._clock()
        if found is not None:
            return _Known(found, now + AGAIN_AFTER)
        pause = _PAUSES[min(known.failures, len(_PAUSES) - 1)]
        return _Known(known.said, now + pause, known.failures + 1)

    async def _first_answer(self, model: str, credentials: Headers) -> Said | None:
        for question in self._questions:
            found = question.answered_in(await self._answer_to(question, model, credentials), model)
            if found is not None:
                # Servers do not change their kind: next time this is asked first.
                self._questions.sort(key=lambda each: each is not question)
                return found
        return None

    async def _answer_to(self, question: _Question, model: str, credentials: Headers) -> object:
        body = question.body(model) if question.body is not None else None
        headers: Headers = [*credentials, (b"Accept", b"application/json"), (b"User-Agent", b"tailfold")]
        if body is not None:
            headers.append((b"Content-Type", b"application/json"))
        try:
            return orjson.loads(await self._fetched(Outgoing(question.method, question.path, headers, body)))
        except (TailfoldError, NotDecodable, orjson.JSONDecodeError) as nothing:
            log.debug("the upstream was asked in vain", path=question.path, reason=type(nothing).__name__)
            return None

    async def _fetched(self, outgoing: Outgoing) -> bytes:
        """The body of a 200; empty where there is none, or one of absurd size."""
        answer = await self._server.send(outgoing)
        try:
            body = answer.read_ready()
            while not answer.complete and len(body) <= _MOST_BYTES:
                body += await answer.read()
            body += answer.read_ready()
            if answer.status != 200 or len(body) > _MOST_BYTES:
                return b""
            return decoder_for(first(answer.headers, b"content-encoding")).feed(body)
        finally:
            answer.close()


def _says_nothing(upstream: str) -> bool:
    host = urlsplit(upstream).hostname or ""
    return any(host == name.lstrip(".") or (name[0] == "." and host.endswith(name)) for name in _SAY_NOTHING)


def _questions(api: bytes) -> list[_Question]:
    beside = api.removesuffix(b"/v1")
    return [
        _Question(b"GET", api + b"/models", None, said.in_model_list),
        _Question(b"GET", beside + b"/api/ps", None, said.in_running_models),
        _Question(b"POST", beside + b"/api/show", _naming_it, said.in_model_card),
        _Question(b"GET", beside + b"/api/v0/models", None, said.in_lm_studio),
        _Question(b"GET", beside + b"/model/info", None, said.in_litellm),
        _Question(b"GET", beside + b"/props", None, said.in_props),
    ]
