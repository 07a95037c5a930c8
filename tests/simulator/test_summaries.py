"""The simulator as the model that sums up: told how to do it, and asked what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from openai import APITimeoutError, AsyncOpenAI, InternalServerError
from openai.types.chat import ChatCompletion

from proxy.fold import wording
from proxy.fold.transcript import transcript
from proxy.fold.wording import Rejection
from proxy.simulator import Simulator, SimulatorConfig
from proxy.simulator.config import Summaries
from proxy.simulator.tokens import TiktokenCounter
from tests.fold.words import assistant, calls, result, user
from tests.simulator.talk import chat
from tests.simulator.talk import user as asked

COUNT = TiktokenCounter().count
TURNS = [
    user("Never touch legacy/old.py. Please find out why the nightly import takes an hour."),
    calls("read_file", '{"path":"jobs/import.py"}'),
    result("for row in rows:\n    database.insert(row)  # see ticket IMP-1234\n" * 20),
    assistant("Every row is inserted by itself; a bulk insert should bring it down to a minute or two."),
    user("Then do that, and run tests/test_import.py afterwards."),
]
TALK = transcript(TURNS)
SYSTEM = {"role": "system", "content": "You mend what is slow."}


def summary_call(
    told: str = TALK, previous: str = "", limit: int = 300, *, takes_system: bool = True
) -> dict[str, Any]:
    asked = wording.request("general", told, limit, previous)
    messages = orjson.loads(asked if takes_system else wording.without_system(asked))
    return {"model": "gpt-4o-mini", "messages": messages, "max_tokens": limit}


def judged(answer: ChatCompletion, told: str = TALK) -> Rejection | None:
    choice = answer.choices[0]
    return wording.verdict(
        choice.message.model_dump(),
        choice.finish_reason,
        transcript=told,
        original_tokens=COUNT(told),
        count=COUNT,
    )


def said(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


@asynccontextmanager
async def summing_up(manner: Summaries, **config: Any) -> AsyncIterator[tuple[Simulator, AsyncOpenAI]]:
    async with (
        Simulator(SimulatorConfig(summaries=manner, **config)) as simulator,
        AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client,
    ):
        yield simulator, client


async def ask(client: AsyncOpenAI, call: dict[str, Any], **options: Any) -> ChatCompletion:
    answer: ChatCompletion = await client.chat.completions.create(**call, **options)
    return answer


@pytest.mark.parametrize("takes_system", [True, False])
async def test_a_good_summary_is_one_and_much_shorter(openai: AsyncOpenAI, takes_system: bool) -> None:
    answer = await ask(openai, summary_call(takes_system=takes_system))
    assert judged(answer) is None
    assert answer.choices[0].finish_reason == "stop"
    assert COUNT(said(answer)) < COUNT(TALK) / 3
    assert "Never touch legacy/old.py" in said(answer)
    assert "jobs/import.py" in said(answer)
    assert "told of 5 messages" in said(answer)


async def test_the_same_transcript_gets_the_same_summary(openai: AsyncOpenAI) -> None:
    first, again = await ask(openai, summary_call()), await ask(openai, summary_call())
    assert first == again


@pytest.mark.parametrize("size", [1, 2, 5, 40])
@pytest.mark.parametrize(
    "text", ["Please read a/b/c.py and e.f.g, then h-1.", "A plain sentence it is. " * 9]
)
async def test_a_good_summary_is_accepted_whatever_it_is_of(
    openai: AsyncOpenAI, size: int, text: str
) -> None:
    told = transcript([user(f"{number}: {text}") for number in range(size)])
    assert judged(await ask(openai, summary_call(told)), told) is None


async def test_a_good_summary_keeps_to_the_length_it_was_given(openai: AsyncOpenAI) -> None:
    for limit in (5, 30, 60):
        answer = await ask(openai, summary_call(limit=limit))
        assert COUNT(said(answer)) <= limit


async def test_a_length_is_the_providers_own_count() -> None:
    async with summing_up("good", tokenizer_factor=1.5) as (_, client):
        answer = await ask(client, summary_call(limit=60))
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 60


async def test_the_record_so_far_is_merged(openai: AsyncOpenAI) -> None:
    earlier = said(await ask(openai, summary_call()))
    later = transcript([user("And now mend reports/weekly.py.")] * 20, first=5)
    answer = await ask(openai, summary_call(later, previous=earlier))
    assert "Never touch legacy/old.py" in said(answer)
    assert "jobs/import.py" in said(answer)
    assert "reports/weekly.py" in said(answer)
    assert "told of 25 messages" in said(answer)
    assert judged(answer, later) is None


async def test_a_record_is_written_of_what_stands_above_the_wish_for_it(openai: AsyncOpenAI) -> None:
    spoken = [orjson.loads(turn.raw) for turn in TURNS]
    first = await ask(openai, call_behind([SYSTEM, *spoken]))
    assert judged(first) is None
    assert f"told of {len(spoken)} messages" in said(first)
    assert "Never touch legacy/old.py" in said(first)
    record = orjson.loads(wording.record_messages(said(first), "system", before_user=True)[0])
    later = [asked("And now mend reports/weekly.py.")] * 20
    merged = await ask(openai, call_behind([SYSTEM, record, *later]))
    assert "Never touch legacy/old.py" in said(merged)
    assert "reports/weekly.py" in said(merged)
    assert f"told of {len(spoken) + 20} messages" in said(merged)


def call_behind(messages: list[dict[str, Any]]) -> dict[str, Any]:
    wish = orjson.loads(wording.wish("general", 300, merges=False))
    return {"model": "gpt-4o", "messages": [*messages, wish], "max_tokens": 300}


@pytest.mark.parametrize(
    ("manner", "rejection"),
    [
        ("echo", Rejection.ECHO),
        ("empty", Rejection.EMPTY),
        ("refusal", Rejection.REFUSAL),
        ("tool_call", Rejection.TOOL_CALL),
        ("inflated", Rejection.INFLATED),
    ],
)
async def test_a_bad_summary_is_rejected_for_what_it_is(manner: Summaries, rejection: Rejection) -> None:
    async with summing_up(manner) as (_, client):
        assert judged(await ask(client, summary_call())) is rejection
        assert said(await ask(client, chat(asked("hello")))) == "hello"


async def test_an_error_is_the_servers() -> None:
    async with summing_up("error") as (_, client):
        with pytest.raises(InternalServerError):
            await ask(client, summary_call())
        assert said(await ask(client, chat(asked("hello")))) == "hello"


async def test_a_hanging_summary_never_comes() -> None:
    async with summing_up("hang") as (simulator, client):
        with pytest.raises(APITimeoutError):
            await ask(client, summary_call(), timeout=0.3)
        await simulator.wait_until(lambda: simulator.active == 0)
        assert said(await ask(client, chat(asked("hello")))) == "hello"


async def test_the_manner_may_be_changed_at_any_time(sim: Simulator, openai: AsyncOpenAI) -> None:
    sim.write_summaries("empty")
    assert judged(await ask(openai, summary_call())) is Rejection.EMPTY
    sim.write_summaries("good")
    assert judged(await ask(openai, summary_call())) is None


async def test_a_summary_comes_after_its_delay_and_anything_else_at_once() -> None:
    async with summing_up("good", summary_delay=60) as (simulator, client):
        with pytest.raises(APITimeoutError):
            await ask(client, summary_call(), timeout=0.3)
        await ask(client, chat(asked("hello")), timeout=30)
        simulator.write_summaries("good", delay=0.0)
        await ask(client, summary_call(), timeout=30)


async def test_summaries_can_be_held_until_the_test_lets_them_go(sim: Simulator, openai: AsyncOpenAI) -> None:
    with sim.holding_summaries():
        asking = asyncio.create_task(ask(openai, summary_call()))
        await sim.wait_until(lambda: bool(sim.summary_calls()))
        await ask(openai, chat(asked("hello")))
        assert not asking.done()
    assert judged(await asking) is None


async def test_an_answer_that_was_ordered_comes_first() -> None:
    async with summing_up("hang") as (simulator, client):
        simulator.fail_next("server_error")
        with pytest.raises(InternalServerError):
            await ask(client, summary_call())


async def test_summary_calls_are_told_from_others(sim: Simulator, openai: AsyncOpenAI) -> None:
    await openai.models.list()
    await ask(openai, chat(asked("a transcript, says the user")))
    await ask(openai, summary_call())
    (summary,) = sim.summary_calls()
    (other,) = sim.chat_calls()
    assert summary.parsed == summary_call()
    assert other.parsed["messages"] == [asked("a transcript, says the user")]
