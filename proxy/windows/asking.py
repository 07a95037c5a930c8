"""Asking the upstream about itself: in the background, seldom, and never on a request's way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import structlog

from proxy.decoding import NotDecodable
from proxy.errors import TailfoldError
from proxy.headers import Headers
from proxy.recent import Recent
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.upstream import Outgoing, TooLarge, Upstream, whole_body
from proxy.windows import said
from proxy.windows.kept import MODELS, Kept
from proxy.windows.said import Said

log = structlog.get_logger("tailfold")

AGAIN_AFTER = 3600.0
# After an answer that told nothing, the first time, the second, and ever after.
PAUSES = (60.0, 300.0, 1800.0, AGAIN_AFTER)
_TIME_LIMIT = 10.0  # for all questions about one model
_MOST_BYTES = 4 * 1024 * 1024  # OpenRouter's list has hundreds of kilobytes
# Clients may make up names: longer ones, and more of them at a time, are not asked about.
_LONGEST_NAME = 256
MOST_AT_ONCE = 8

# Their lists of models say nothing of windows, and paths of other servers would be noise to them.
_SAY_NOTHING = (
    "api.openai.com",
    ".openai.azure.com",
    ".cognitiveservices.azure.com",
    ".services.ai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
    ".aiplatform.googleapis.com",
    ".amazonaws.com",
    "api.deepseek.com",
    "api.x.ai",
)
# Their list of models is where they say it, if at all.
_SAY_IT_IN_THE_LIST = (
    "openrouter.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.together.xyz",
    "api.together.ai",
    "api.fireworks.ai",
    "api.cerebras.ai",
    "api.deepinfra.com",
    "router.huggingface.co",
    "integrate.api.nvidia.com",
    "api.moonshot.ai",
)


class _Unanswered(Exception):
    """The question is for another server, or for another time."""


class _NotThere(_Unanswered):
    """This server does not know the path."""


class _Refused(Exception):
    """Whoever is refused, or asks too much already, does not go on asking."""


class _Question(NamedTuple):
    server: str  # the kind that answers it
    method: bytes
    path: bytes
    answered_in: Callable[[object, str], Said | None]
    names_the_model: bool = False


class _Turn(NamedTuple):
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
        self._questions = _questions(upstream)
        self._kept = Kept(Said, upstream, b"said", store, clock)
        self._turns: Recent[str, _Turn] = Recent(MODELS)
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._kind: str | None = None  # of the server, once it has answered
        self._not_there: dict[bytes, float] = {}  # since when

    def said_of(self, model: str) -> Said | None:
        return self._kept.get(model)

    def recalling(self, model: str) -> list[Awaitable[None]]:
        """A question for what was said before this process began, or meanwhile to another."""
        return self._kept.recalling(model)

    def about(self, model: str, credentials: Headers) -> None:
        """Returns at once. The credentials are the caller's, and used for this one time."""
        if not self._questions or not 0 < len(model) <= _LONGEST_NAME:
            return
        if model in self._under_way or len(self._under_way) >= MOST_AT_ONCE or not self._is_due(model):
            return
        task = self._tasks.start(self._ask(model, list(credentials)), name="ask about a window")
        self._under_way[model] = task
        task.add_done_callback(lambda _: self._under_way.pop(model, None))

    async def finished(self) -> None:
        """Wait for what is being asked now."""
        if self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    def _is_due(self, model: str) -> bool:
        turn = self._turns.get(model)
        # A turn further away than any pause was set by a clock that has been set since.
        return turn is None or not 0 < turn.due - self._clock() <= AGAIN_AFTER

    async def _ask(self, model: str, credentials: Headers) -> None:
        found: Said | None = None
        try:
            async with asyncio.timeout(self._time_limit):
                found = await self._first_answer(model, credentials)
        except (TimeoutError, TailfoldError, _Refused) as failure:
            log.debug("the upstream was asked for a window in vain", reason=type(failure).__name__)
        self._turns.put(model, self._next_turn(model, found))
        if found is not None:
            if found != self._kept.get(model):
                log.info("the upstream says how large a window is", model=model, window=found.window)
            self._kept.put(model, found)

    def _next_turn(self, model: str, found: Said | None) -> _Turn:
        if found is not None:
            return _Turn(self._clock() + AGAIN_AFTER)
        failures = (self._turns.get(model) or _Turn()).failures
        return _Turn(self._clock() + PAUSES[min(failures, len(PAUSES) - 1)], failures + 1)

    async def _first_answer(self, model: str, credentials: Headers) -> Said | None:
        for question in self._worth_asking():
            try:
                found = question.answered_in(await self._answer_to(question, model, credentials), model)
            except _NotThere:
                self._not_there[question.path] = self._clock()
                continue
            except _Unanswered:
                continue
            if found is not None:
                self._kind = question.server
                return found
        return None

    def _worth_asking(self) -> Iterator[_Question]:
        """Servers do not change their kind: the one that has answered is asked as such first."""
        for question in sorted(self._questions, key=lambda each: each.server != self._kind):
            siblings = (each for each in self._questions if each.server == question.server)
            if not any(self._is_not_there(each.path) for each in siblings):
                yield question

    def _is_not_there(self, path: bytes) -> bool:
        since = self._not_there.get(path)
        return since is not None and 0 <= self._clock() - since < AGAIN_AFTER

    async def _answer_to(self, question: _Question, model: str, credentials: Headers) -> object:
        answer = await self._server.send(_outgoing(question, model, credentials))
        try:
            if answer.status != 200:
                raise _told_by(answer.status, question)
            body = orjson.loads(await whole_body(answer, _MOST_BYTES))
        except (TooLarge, NotDecodable, orjson.JSONDecodeError) as broken:
            raise _Unanswered from broken
        finally:
            answer.close()
        if isinstance(body, dict) and body.get("error"):
            raise _NotThere  # LM Studio's way of saying so
        return body


def _outgoing(question: _Question, model: str, credentials: Headers) -> Outgoing:
    headers = [*credentials, (b"Accept", b"application/json"), (b"Accept-Encoding", b"gzip")]
    headers.append((b"User-Agent", b"tailfold"))
    if not question.names_the_model:
        return Outgoing(question.method, question.path, headers, None)
    headers.append((b"Content-Type", b"application/json"))
    body = b'{"model":%b}' % orjson.dumps(model.encode(errors="replace").decode())
    return Outgoing(question.method, question.path, headers, body)


def _told_by(status: int, question: _Question) -> Exception:
    if status in (401, 403, 429):
        return _Refused()
    # A 404 to a question that names a model may be about the model.
    return _NotThere() if status in (404, 405, 501) and not question.names_the_model else _Unanswered()


def _questions(upstream: str) -> tuple[_Question, ...]:
    parts = urlsplit(upstream)
    host = (parts.hostname or "").lower()
    if _is_among(host, _SAY_NOTHING):
        return ()
    api = parts.path.rstrip("/").encode()
    beside = api.removesuffix(b"/v1")
    in_the_list = _Question("any", b"GET", api + b"/models", said.in_model_list)
    if _is_among(host, _SAY_IT_IN_THE_LIST):
        return (in_the_list,)
    return (
        in_the_list,
        _Question("Ollama", b"GET", beside + b"/api/ps", said.in_running_models),
        _Question("Ollama", b"POST", beside + b"/api/show", said.in_model_card, names_the_model=True),
        _Question("LM Studio", b"GET", beside + b"/api/v0/models", said.in_lm_studio),
        _Question("llama.cpp", b"GET", beside + b"/props", said.in_props),
        _Question("LiteLLM", b"GET", beside + b"/model/info", said.in_litellm),
    )


def _is_among(host: str, names: tuple[str, ...]) -> bool:
    return any(host.endswith(name) if name.startswith(".") else host == name for name in names)
