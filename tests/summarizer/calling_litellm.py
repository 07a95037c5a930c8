"""Calls a simulated provider through the real litellm and prints what came of it, as JSON: a process of its
own, as litellm takes seconds to import and is never to be in a process that tests something else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from dataclasses import replace
from typing import Any

import orjson

from proxy import logs
from proxy.settings.sections import Summarizer as Settings
from proxy.simulator import Answer, Fault, Simulator, SimulatorConfig
from proxy.summarizer import LitellmSummarizer, Summarizer, SummaryFailed, Wanted, summarizer_for
from tests.summarizer.upstreams import upstream_at

PROVIDERS_KEY = "sk-canary-of-the-provider"
CALLERS_KEY = "sk-canary-of-the-caller"
TEXT = "canary message text"
WANTED = Wanted(
    messages=orjson.dumps(
        [{"role": "system", "content": "Sum it up."}, {"role": "user", "content": f"{TEXT}, to be summed up"}]
    ),
    tokens=30,
    most_tokens=200,
    model="gpt-4o",
    preferred="openai/gpt-4o-mini",
    credentials=[(b"Authorization", f"Bearer {CALLERS_KEY}".encode())],
)
FAULTS = (
    Fault.RATE_LIMITED,
    Fault.SERVER_ERROR,
    Fault.DISCONNECT_BEFORE_HEADERS,
    Fault.TRUNCATED_BODY,
)

Outcome = list[Any]


async def outcome(asking: Summarizer, wanted: Wanted = WANTED) -> Outcome:
    try:
        written = await asking.write(wanted)
    except SummaryFailed as failed:
        return [failed.reason, failed.pause]
    said = TEXT in str(written.message["content"])
    return [
        written.model,
        written.finish_reason,
        said,
        written.usage is not None and written.usage.prompt > 0,
    ]


def json_answer(status: int, body: object) -> Answer:
    return Answer(status, (("content-type", "application/json"),), (orjson.dumps(body),))


def refusal(message: str) -> Answer:
    return json_answer(400, {"error": {"message": f"{message} {TEXT}", "type": "invalid_request_error"}})


def thought_away() -> Answer:
    message = {"role": "assistant", "content": ""}
    choices = [{"index": 0, "message": message, "finish_reason": "length"}]
    envelope = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini"}
    return json_answer(200, {**envelope, "choices": choices})


async def first_calls(report: dict[str, Any]) -> None:
    """The import takes longer than this call may take, and is there for a later one."""
    hurried = LitellmSummarizer(temperature=0.3, timeout=0.1)
    report["imported before the first call"] = "litellm" in sys.modules
    began = time.perf_counter()
    report["first call"] = await outcome(hurried)
    report["waited for the import"] = time.perf_counter() - began > 1.5


async def well(sim: Simulator, asking: Summarizer, report: dict[str, Any]) -> None:
    report["well"] = await outcome(asking)
    [received] = sim.requests
    report["the provider's key was sent"] = received.header("authorization") == f"Bearer {PROVIDERS_KEY}"
    sent = dict(received.parsed)
    report["messages are sent"] = sent.pop("messages") == orjson.loads(WANTED.messages)
    report["sent beside them"] = sent
    report["no temperature"] = await outcome(LitellmSummarizer(temperature=None, timeout=20))
    report["temperature is sent"] = "temperature" in sim.requests[-1].parsed


async def failing(sim: Simulator, asking: Summarizer, report: dict[str, Any]) -> None:
    for fault in FAULTS:
        before = sim.arrived
        sim.fail_next(fault)
        report[fault.value] = await outcome(asking)
        report[f"{fault}, requests"] = sim.arrived - before
    sim.answer_next(refusal("This model's maximum context length is 10 tokens."))
    report["too long"] = await outcome(asking)
    alone = LitellmSummarizer(temperature=0.3, timeout=20)
    report["no such provider"] = await outcome(alone, replace(WANTED, preferred="nobody/at-all"))
    report["no model"] = await outcome(alone, replace(WANTED, preferred=None))
    report["not JSON"] = await _answered(sim, asking, Answer(200, (), (b"<html>" + TEXT.encode(),)))


async def _answered(sim: Simulator, asking: Summarizer, answer: Answer) -> Outcome:
    sim.answer_next(answer)
    return await outcome(asking)


async def hanging(sim: Simulator, report: dict[str, Any]) -> None:
    sim.fail_next(Fault.HANG_BEFORE_HEADERS)
    report["hanging"] = await outcome(LitellmSummarizer(temperature=0.3, timeout=0.5))
    await sim.wait_until(lambda: sim.active == 0)


async def other_forms(sim: Simulator, report: dict[str, Any]) -> None:
    orders = {"refused": refusal("Unsupported value: 'temperature'."), "thought": thought_away()}
    for name, answer in orders.items():
        asking = LitellmSummarizer(temperature=0.3, timeout=20)
        callers_key_in(sim, report)
        sim.forget_requests()
        report[name] = [await _answered(sim, asking, answer), await outcome(asking)]
        report[f"{name}, sent"] = [_form(request.parsed) for request in sim.requests]


async def lengths(sim: Simulator, report: dict[str, Any]) -> None:
    asking, long = LitellmSummarizer(temperature=0.3, timeout=20), replace(WANTED, most_tokens=20_000)
    callers_key_in(sim, report)
    sim.forget_requests()
    report["too long an answer"] = [await outcome(asking, long), await outcome(asking, long)]
    report["too long an answer, sent"] = [_form(request.parsed) for request in sim.requests]
    sim.answer_next(refusal("This model's maximum context length is 8192 tokens."))
    before = sim.arrived
    large = replace(long, tokens=9_000)
    report["window named"] = [await _window_named(asking, large), await _window_named(asking, large)]
    report["window named, requests"] = sim.arrived - before


async def _window_named(asking: Summarizer, wanted: Wanted) -> int | None:
    try:
        await asking.write(wanted)
    except SummaryFailed as failed:
        return failed.window
    return None


def callers_key_in(sim: Simulator, report: dict[str, Any]) -> None:
    sent = any(CALLERS_KEY in repr((request, request.body)) for request in sim.requests)
    report["the caller's key was sent"] = report.get("the caller's key was sent", False) or sent


def _form(body: dict[str, Any]) -> list[object]:
    return [body.get("temperature"), body.get("max_tokens")]


async def wrong_key(sim: Simulator, asking: Summarizer, report: dict[str, Any]) -> None:
    os.environ["OPENAI_API_KEY"] = f"{PROVIDERS_KEY}-of-old"
    report["wrong key"] = await outcome(asking)
    del os.environ["OPENAI_API_KEY"]
    report["no key"] = await outcome(asking)


async def main() -> None:
    report: dict[str, Any] = {}
    async with Simulator(SimulatorConfig(api_key=PROVIDERS_KEY, retry_after=7, counting="rough")) as sim:
        os.environ |= {"OPENAI_API_KEY": PROVIDERS_KEY, "OPENAI_BASE_URL": sim.base_url}
        await first_calls(report)
        settings = Settings(model=WANTED.preferred, timeout=20)
        asking = summarizer_for(settings, upstream_at(9), "https://api.openai.com/v1")
        await well(sim, asking, report)
        await failing(sim, asking, report)
        await hanging(sim, report)
        await other_forms(sim, report)
        await lengths(sim, report)
        await wrong_key(sim, asking, report)
        callers_key_in(sim, report)
    print(orjson.dumps(report).decode())


if __name__ == "__main__":
    logs.configure("debug", "json")
    logging.getLogger().setLevel(logging.DEBUG)
    asyncio.run(main())
