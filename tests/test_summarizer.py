"""A summary is asked of the upstream itself, by a cheap model where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from proxy.metrics import Metrics
from proxy.summarizer import SummaryFailed, UpstreamSummarizer, Wanted
from proxy.tasks import Tasks
from proxy.upstream import Timeouts, Upstream
from proxy.upstream.pool import Origin

ASKED = Wanted(
    messages=b'[{"role":"user","content":"sum up"}]',
    most_tokens=200,
    model="gpt-4o",
    preferred="gpt-4o-mini",
    credentials=[(b"Authorization", b"Bearer sk-caller")],
)
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "short"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 5},
}

Answering = Callable[[dict[str, Any]], web.Response]


class Provider:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    async def chat(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        if self._answering is nothing:
            await asyncio.Event().wait()
        return self._answering(body)

    @property
    def models(self) -> list[str]:
        return [body["model"] for body in self.bodies]


@asynccontextmanager
async def summarizer(
    answering: Answering, *, temperature: float | None = 0.3, timeout: float = 30
) -> AsyncIterator[tuple[UpstreamSummarizer, Provider]]:
    provider = Provider(answering)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider.chat)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    origin, timeouts = Origin("127.0.0.1", port, None), Timeouts(5, 30, 30)
    upstream = Upstream(f"http://127.0.0.1:{port}/v1", origin, timeouts, Metrics(), Tasks())
    try:
        yield UpstreamSummarizer(upstream, temperature=temperature, timeout=timeout), provider
    finally:
        upstream.close()
        await runner.cleanup()


def well(_body: dict[str, Any]) -> web.Response:
    return web.json_response(ANSWER)


def nothing(_body: dict[str, Any]) -> web.Response:
    raise AssertionError("it is never asked what to answer")


def refusal(message: str, status: int = 400, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def test_the_preferred_model_is_asked_in_the_callers_name() -> None:
    async with summarizer(well) as (asking, provider):
        written = await asking.write(ASKED)
    assert (written.message["content"], written.model, written.finish_reason) == (
        "short",
        "gpt-4o-mini",
        "stop",
    )
    assert written.usage is not None
    assert written.usage.completion == 5
    assert provider.keys == ["Bearer sk-caller"]
    [body] = provider.bodies
    assert body == {
        "model": "gpt-4o-mini",
        "max_tokens": 200,
        "temperature": 0.3,
        "messages": [{"role": "user", "content": "sum up"}],
    }


@pytest.mark.parametrize("status", [400, 403, 404])
async def test_a_model_that_is_not_served_gives_way_to_the_conversations_own_for_good(status: int) -> None:
    def only_the_large_one(body: dict[str, Any]) -> web.Response:
        return well(body) if body["model"] == "gpt-4o" else refusal("no such model", status)

    async with summarizer(only_the_large_one) as (asking, provider):
        assert (await asking.write(ASKED)).model == "gpt-4o"
        assert (await asking.write(ASKED)).model == "gpt-4o"
    assert provider.models == ["gpt-4o-mini", "gpt-4o", "gpt-4o"]


async def test_a_model_that_wants_to_be_asked_otherwise_is_and_stays_so() -> None:
    def reasoning(body: dict[str, Any]) -> web.Response:
        if "max_tokens" in body:
            return refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return refusal("Unsupported value: 'temperature'.") if "temperature" in body else well(body)

    async with summarizer(reasoning) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(ASKED)
    assert [sorted(body.keys() - {"model", "messages"}) for body in provider.bodies] == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert set(provider.models) == {"gpt-4o-mini"}


async def test_no_temperature_is_sent_where_none_is_wished() -> None:
    async with summarizer(well, temperature=None) as (asking, provider):
        await asking.write(ASKED)
    assert "temperature" not in provider.bodies[0]


@pytest.mark.parametrize(
    ("answer", "reason", "pause"),
    [
        (lambda _: refusal("slow down", 429, **{"Retry-After": "7"}), "status_429", 7.0),
        (lambda _: refusal("slow down", 429, **{"Retry-After": "1e9"}), "status_429", 3600.0),
        (lambda _: refusal("slow down", 429, **{"Retry-After": "soon"}), "status_429", None),
        (lambda _: refusal("oh no", 500), "status_500", None),
        (lambda _: refusal("wrong key", 401), "status_401", None),
        (lambda _: refusal("never", 400), "refused", None),
        (lambda _: web.Response(text="<html>"), "unreadable", None),
        (lambda _: web.json_response({"choices": []}), "unreadable", None),
        (lambda _: web.json_response([1]), "unreadable", None),
    ],
)
async def test_a_failure_has_a_reason(answer: Answering, reason: str, pause: float | None) -> None:
    async with summarizer(answer) as (asking, _):
        with pytest.raises(SummaryFailed) as failed:
            await asking.write(ASKED)
    assert (failed.value.reason, failed.value.pause) == (reason, pause)


async def test_an_upstream_that_is_gone_is_a_failure_too() -> None:
    async with summarizer(well) as (asking, _):
        pass
    with pytest.raises(SummaryFailed, match="upstream_unreachable"):
        await asking.write(ASKED)


async def test_a_model_that_takes_too_long_is_left() -> None:
    async with summarizer(nothing, timeout=0.1) as (asking, _):
        with pytest.raises(SummaryFailed, match="timeout"):
            await asking.write(ASKED)
