"""A summary is asked of the upstream itself, by a cheap model where there is one."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web

from proxy.fold.wording import request
from proxy.summarizer import SummaryFailed, SummaryRefused, UpstreamSummarizer, Wanted
from tests.summarizer.upstreams import upstream_at

ASKED = Wanted(
    messages=b'[{"role":"user","content":"sum up"}]',
    tokens=30,
    most_tokens=200,
    model="gpt-4o",
    preferred="gpt-4o-mini",
    credentials=[(b"Authorization", b"Bearer sk-caller")],
)
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "short"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 5},
}
ZIPPED = gzip.compress(orjson.dumps(ANSWER))
GZIP = {"Content-Encoding": "gzip"}
TOO_LONG = "This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens."

Answering = Callable[[dict[str, Any]], web.Response]


class Provider:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []

    async def chat(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        self.paths.append(request.path_qs)
        if self._answering is nothing:
            await asyncio.Event().wait()
        if self._answering is cut:
            await _break_off(request)
        return self._answering(body)

    @property
    def models(self) -> list[str]:
        return [body["model"] for body in self.bodies]


@asynccontextmanager
async def summarizer(
    answering: Answering,
    *,
    temperature: float | None = 0.3,
    timeout: float = 30,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[tuple[UpstreamSummarizer, Provider]]:
    provider = Provider(answering)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider.chat)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    upstream = upstream_at(port)
    try:
        yield UpstreamSummarizer(upstream, temperature=temperature, timeout=timeout, clock=clock), provider
    finally:
        upstream.close()
        await runner.cleanup()


def well(_body: dict[str, Any]) -> web.Response:
    return web.json_response(ANSWER)


def cut(_body: dict[str, Any]) -> web.Response:
    raise AssertionError("it is never asked what to answer")


async def _break_off(request: web.Request) -> None:
    begun = web.StreamResponse(headers={"Content-Length": "1000"})
    await begun.prepare(request)
    await begun.write(b'{"choices":[')
    assert request.transport is not None
    request.transport.close()


def nothing(_body: dict[str, Any]) -> web.Response:
    raise AssertionError("it is never asked what to answer")


def silent(thought: str = "") -> web.Response:
    """Of a model that has spent all that it might write on thinking."""
    message = {"role": "assistant", "content": thought}
    return web.json_response({"choices": [{"message": message, "finish_reason": "length"}]})


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
    assert written.in_callers_name
    assert written.usage.completion == 5
    assert provider.keys == ["Bearer sk-caller"]
    [body] = provider.bodies
    assert body == {
        "model": "gpt-4o-mini",
        "max_tokens": 200,
        "temperature": 0.3,
        "messages": [{"role": "user", "content": "sum up"}],
    }


def own(**fields: Any) -> Wanted:
    """A wish behind the conversation's own request, of which these are the other fields."""
    said = {"model": "gpt-4o", **fields}
    return replace(
        ASKED, preferred=None, beside_messages={name: orjson.dumps(value) for name, value in said.items()}
    )


async def test_of_the_conversations_own_request_all_stays_that_is_not_about_its_answer() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    about_the_answer = {
        "max_completion_tokens": 9_000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 3,
        "stop": ["\n"],
        "response_format": {"type": "json_object"},
        "tool_choice": "required",
    }
    kept = {"model": "gpt-4o", "tools": tools, "temperature": 1, "prompt_cache_key": "k", "user": "u"}
    async with summarizer(well) as (asking, provider):
        await asking.write(own(**kept, **about_the_answer))
    [body] = provider.bodies
    assert body == {
        **kept,
        "tool_choice": "none",
        "max_completion_tokens": 200,
        "messages": [{"role": "user", "content": "sum up"}],
    }


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({}, {"max_tokens": 200}),
        ({"max_tokens": 7}, {"max_tokens": 200}),
        ({"max_tokens": None, "max_completion_tokens": 7}, {"max_completion_tokens": 200}),
        ({"tools": [], "tool_choice": "auto"}, {"max_tokens": 200, "tools": []}),
        (
            {"functions": [{"name": "f"}]},
            {"max_tokens": 200, "functions": [{"name": "f"}], "function_call": "none"},
        ),
    ],
)
async def test_the_limit_and_the_choice_of_no_tool_are_spelled_as_the_client_does(
    said: dict[str, Any], asked: dict[str, Any]
) -> None:
    async with summarizer(well) as (asking, provider):
        await asking.write(own(**said))
    [body] = provider.bodies
    assert body == {"model": "gpt-4o", **asked, "messages": [{"role": "user", "content": "sum up"}]}


async def test_a_refusal_may_be_mended_by_asking_in_another_form() -> None:
    async with summarizer(lambda _: refusal("No.")) as (asking, _):
        with pytest.raises(SummaryRefused, match="status_400"):
            await asking.write(own())
    async with summarizer(lambda _: refusal("Later.", status=500)) as (asking, _):
        with pytest.raises(SummaryFailed) as failed:
            await asking.write(own())
    assert not isinstance(failed.value, SummaryRefused)


async def test_what_the_conversations_own_requests_have_behind_their_path_is_sent_along() -> None:
    async with summarizer(well) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(replace(ASKED, query=b"api-version=2024-10-21"))
    assert provider.paths == ["/v1/chat/completions", "/v1/chat/completions?api-version=2024-10-21"]


def only_the_large_one(refused: Callable[[], web.Response]) -> Answering:
    def answering(body: dict[str, Any]) -> web.Response:
        return well(body) if body["model"] == "gpt-4o" else refused()

    return answering


@pytest.mark.parametrize(
    "refused",
    [
        lambda: refusal("Not a valid model ID"),
        lambda: refusal("Your key has no access", 403),
        lambda: refusal("gpt-4o-mini does not exist", 404),
        lambda: web.Response(text="<html>not found</html>", status=404),
    ],
)
async def test_a_model_that_is_not_served_gives_way_to_the_conversations_own_and_stays_away(
    refused: Callable[[], web.Response],
) -> None:
    async with summarizer(only_the_large_one(refused)) as (asking, provider):
        assert (await asking.write(ASKED)).model == "gpt-4o"
        assert (await asking.write(ASKED)).model == "gpt-4o"
    assert provider.models == ["gpt-4o-mini", "gpt-4o", "gpt-4o"]


async def test_what_one_caller_is_refused_another_may_have() -> None:
    other = replace(ASKED, credentials=[(b"Authorization", b"Bearer sk-other")])
    async with summarizer(only_the_large_one(lambda: refusal("no", 403))) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(other)
        await asking.write(ASKED)
    assert provider.models == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini", "gpt-4o", "gpt-4o"]


async def test_after_an_hour_it_is_asked_again() -> None:
    now = [0.0]
    answering = only_the_large_one(lambda: refusal("no", 404))
    async with summarizer(answering, clock=lambda: now[0]) as (asking, provider):
        await asking.write(ASKED)
        now[0] = 3601.0
        await asking.write(ASKED)
    assert provider.models == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini", "gpt-4o"]


@pytest.mark.parametrize("refused", ["Your input is too long for this model.", "The prompt was filtered."])
async def test_a_refusal_of_one_prompt_is_none_of_the_model(refused: str) -> None:
    async with summarizer(only_the_large_one(lambda: refusal(refused))) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(ASKED)
    assert provider.models == ["gpt-4o-mini", "gpt-4o"] * 2


def gives_at_most(longest: int, said: str) -> Answering:
    def answering(body: dict[str, Any]) -> web.Response:
        asked = body["max_tokens"]
        return refusal(said.format(asked=asked, longest=longest)) if asked > longest else well(body)

    return answering


OPENAIS = (
    "max_tokens is too large: {asked}. This model supports at most {longest} completion tokens, whereas you "
    "provided {asked}."
)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (OPENAIS, [20_000, 4_096, 4_096]),
        ("The model is sorry: max_tokens is too large.", [20_000, 10_000, 5_000, 2_500, 2_500]),
    ],
)
async def test_too_long_an_answer_is_asked_for_shorter_and_remembered_of_the_model(
    said: str, asked: list[int]
) -> None:
    wanted = replace(ASKED, most_tokens=20_000)
    async with summarizer(gives_at_most(4_096, said)) as (asking, provider):
        assert (await asking.write(wanted)).model == "gpt-4o-mini"
        assert (await asking.write(wanted)).model == "gpt-4o-mini"
    assert [body["max_tokens"] for body in provider.bodies] == asked
    assert set(provider.models) == {"gpt-4o-mini"}


async def test_thoughts_get_no_more_than_the_model_gives() -> None:
    def thinking(body: dict[str, Any]) -> web.Response:
        if body["max_tokens"] > 4_096:
            return refusal(OPENAIS.format(asked=body["max_tokens"], longest=4_096))
        return well(body) if body["max_tokens"] > 1_000 else silent()

    async with summarizer(thinking) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(ASKED)
    assert [body["max_tokens"] for body in provider.bodies] == [200, 8_200, 4_096, 4_096]


async def test_an_answer_shorter_than_any_summary_is_not_asked_for_and_the_model_not_given_up() -> None:
    answering = only_the_large_one(lambda: refusal(OPENAIS.format(asked=200, longest=16)))
    async with summarizer(answering) as (asking, provider):
        await asking.write(ASKED)
        await asking.write(ASKED)
    assert provider.models == ["gpt-4o-mini", "gpt-4o"] * 2


async def test_a_window_that_a_refusal_names_is_told_and_remembered_of_the_model() -> None:
    large = replace(ASKED, tokens=9_000)
    async with summarizer(only_the_large_one(lambda: refusal(TOO_LONG))) as (asking, provider):
        for _ in range(2):
            with pytest.raises(SummaryRefused) as refused:
                await asking.write(large)
            assert (refused.value.reason, refused.value.window) == ("too_long", 8_192)
    assert provider.models == ["gpt-4o-mini"]


async def test_what_fits_a_window_that_was_named_is_asked_for_with_no_more_thoughts_than_fit_too() -> None:
    def small(body: dict[str, Any]) -> web.Response:
        if body["max_tokens"] > 5_000:
            return refusal(TOO_LONG)
        return well(body) if body["max_tokens"] > 1_000 else silent()

    wanted = replace(ASKED, tokens=4_000)
    async with summarizer(small) as (asking, provider):
        with pytest.raises(SummaryRefused):
            await asking.write(wanted)
        await asking.write(wanted)
    assert [body["max_tokens"] for body in provider.bodies] == [200, 8_200, 4_192]


async def test_a_window_too_small_for_any_summary_is_left_to_the_conversations_own_model() -> None:
    tiny = "This model's maximum context length is 512 tokens. Your messages resulted in 900 tokens."
    async with summarizer(only_the_large_one(lambda: refusal(tiny))) as (asking, provider):
        assert (await asking.write(ASKED)).model == "gpt-4o"
    assert provider.models == ["gpt-4o-mini", "gpt-4o"]


@pytest.mark.parametrize("thought", ["", "<think>Well, the user"])
async def test_a_model_that_thinks_its_answer_away_gets_room_for_both_and_keeps_it(thought: str) -> None:
    def thinking(body: dict[str, Any]) -> web.Response:
        return well(body) if body["max_tokens"] > 1000 else silent(thought)

    async with summarizer(thinking) as (asking, provider):
        assert (await asking.write(ASKED)).message["content"] == "short"
        await asking.write(ASKED)
    assert [body["max_tokens"] for body in provider.bodies] == [200, 8200, 8200]


async def test_an_answer_may_come_compressed() -> None:
    async with summarizer(lambda _: web.Response(body=ZIPPED, headers=GZIP)) as (asking, _):
        assert (await asking.write(ASKED)).message["content"] == "short"


async def test_a_connection_that_breaks_in_the_middle_is_a_failure() -> None:
    async with summarizer(cut) as (asking, _):
        with pytest.raises(SummaryFailed, match="upstream_disconnected"):
            await asking.write(ASKED)


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


@pytest.mark.parametrize(
    "said",
    [
        "System role not supported",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Error rendering the model's chat template: no system message, please",
    ],
)
async def test_a_model_whose_template_knows_no_system_message_is_told_all_in_one(said: str) -> None:
    def without(body: dict[str, Any]) -> web.Response:
        return refusal(said) if body["messages"][0]["role"] == "system" else well(body)

    asked = replace(ASKED, messages=request("general", "what was said", 200))
    async with summarizer(without) as (asking, provider):
        for _ in range(2):
            assert (await asking.write(asked)).message["content"] == "short"
    refused, *told = provider.bodies
    assert [message["role"] for message in refused["messages"]] == ["system", "user"]
    assert [[message["role"] for message in body["messages"]] for body in told] == [["user"], ["user"]]
    assert told[0]["messages"][0]["content"].endswith(refused["messages"][1]["content"])
    assert {body["temperature"] for body in provider.bodies} == {0.3}
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
        (lambda _: refusal("wrong key", 401), "unauthorized", None),
        (lambda _: refusal("never", 400), "status_400", None),
        (lambda _: web.Response(text="no such page", status=404), "status_404", None),
        (lambda _: refusal("too large", 413), "too_long", None),
        (lambda _: refusal(TOO_LONG), "too_long", None),
        (lambda _: refusal(TOO_LONG, 200), "too_long", None),
        (lambda _: web.Response(text="<html>"), "unreadable", None),
        (lambda _: web.Response(body=b"{}" * 3_000_000), "unreadable", None),
        (lambda _: web.Response(body=ZIPPED[:-20], headers=GZIP), "unreadable", None),
        (lambda _: web.Response(body=b"plain", headers=GZIP), "unreadable", None),
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
