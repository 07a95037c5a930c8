from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI, BadRequestError

from proxy.simulator import Simulator, SimulatorConfig
from tests.simulator.talk import Message, assistant, calls, chat, result, user

SYSTEM: Message = {"role": "system", "content": "Be brief."}
DEVELOPER: Message = {"role": "developer", "content": "Be brief."}

NOT_FIRST = "System message must be at the beginning."
NOT_ALTERNATING = "Conversation roles must alternate user/assistant/user/assistant/..."


@pytest.fixture
async def strict() -> AsyncIterator[AsyncOpenAI]:
    async with (
        Simulator(SimulatorConfig(strict_template=True)) as simulator,
        AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client,
    ):
        yield client


async def is_refused(client: AsyncOpenAI, words: str, *messages: Message) -> None:
    with pytest.raises(BadRequestError, match=re.escape(words)):
        await client.chat.completions.create(**chat(*messages))


@pytest.mark.parametrize(
    "messages",
    [
        [user("a")],
        [SYSTEM, user("a"), assistant("b"), user("c")],
        [DEVELOPER, user("a"), calls("1", "2"), result("1"), result("2"), user("b")],
    ],
)
async def test_takes_a_conversation_as_most_clients_write_it(
    strict: AsyncOpenAI, messages: list[Message]
) -> None:
    assert await strict.chat.completions.create(**chat(*messages))


@pytest.mark.parametrize("second", [SYSTEM, DEVELOPER])
async def test_a_system_message_stands_first_and_alone(strict: AsyncOpenAI, second: Message) -> None:
    await is_refused(strict, NOT_FIRST, SYSTEM, second, user("a"))
    await is_refused(strict, NOT_FIRST, user("a"), second)


async def test_two_user_messages_in_a_row_are_refused(strict: AsyncOpenAI) -> None:
    await is_refused(strict, NOT_ALTERNATING, SYSTEM, user("a"), user("b"))


@pytest.mark.parametrize(
    ("messages", "taken"),
    [
        ([user("a")], True),
        ([SYSTEM, user("a"), assistant("b"), user("c")], True),
        ([SYSTEM, user("a"), calls("1"), result("1"), assistant("b"), user("c")], True),
        ([SYSTEM, SYSTEM, user("a")], False),
        ([user("a"), assistant("b"), SYSTEM, user("c")], False),
        ([user("a"), user("b")], False),
        ([user("a"), assistant("b"), assistant("c")], False),
        ([assistant("a"), user("b")], False),
    ],
)
async def test_some_take_nothing_but_turns(messages: list[Message], taken: bool) -> None:
    async with (
        Simulator(SimulatorConfig(alternating_template=True)) as simulator,
        AsyncOpenAI(base_url=simulator.base_url, api_key="k", max_retries=0) as client,
    ):
        if taken:
            assert await client.chat.completions.create(**chat(*messages))
        else:
            await is_refused(client, NOT_ALTERNATING, *messages)


async def test_anything_goes_without_a_strict_template(openai: AsyncOpenAI) -> None:
    assert await openai.chat.completions.create(**chat(user("a"), SYSTEM, user("b"), user("c"), SYSTEM))
