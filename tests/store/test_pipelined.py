from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoScriptError
from structlog.testing import capture_logs

from proxy.store.pipelined import LARGE, Pipelined
from proxy.store.redis_asking import Command
from proxy.store.redis_scripts import Script
from proxy.tasks import Tasks
from tests.store.doubles import PATIENCE

SCRIPT = Script("return 1")


class Echo:
    """Answers every command with itself, once its gate is open."""

    def __init__(self) -> None:
        self.batches: list[list[Command]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.knows_scripts = True

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        self.batches.append(list(commands))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return [self._answer(command) for command in commands]

    def _answer(self, command: Command) -> Any:
        return NoScriptError("") if command[0] == "EVALSHA" and not self.knows_scripts else command


class Line:
    def __init__(self) -> None:
        self.quick, self.patient, self.tasks = Echo(), Echo(), Tasks()
        self.pipelined = Pipelined(self.quick, self.patient, self.tasks)

    def ask(self, *names: str) -> asyncio.Task[list[Any]]:
        return asyncio.ensure_future(self.pipelined.ask([("GET", name) for name in names]))


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    made = Line()
    yield made
    await made.pipelined.close()
    await made.tasks.close(timeout=PATIENCE)


async def some_turns() -> None:
    """As many as a batch needs to get going."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_asked_for_at_once_goes_out_together_and_everybody_gets_his_own(line: Line) -> None:
    answers = await asyncio.gather(line.ask("a", "b"), line.ask(), line.ask("c"))
    assert [*answers] == [[("GET", "a"), ("GET", "b")], [], [("GET", "c")]]
    assert len(line.quick.batches) == 1


async def test_while_some_batches_are_under_way_the_next_questions_gather(line: Line) -> None:
    line.quick.gate.clear()
    asked = []
    for number in range(20):
        asked.append(line.ask(str(number)))
        await some_turns()
    under_way = len(line.quick.batches)
    assert 1 <= under_way < 20
    line.quick.gate.set()
    assert await asyncio.gather(*asked) == [[("GET", str(number))] for number in range(20)]
    assert len(line.quick.batches) == under_way + 1


async def test_whoever_leaves_takes_nothing_from_the_others(line: Line) -> None:
    line.quick.gate.clear()
    stays, leaves = line.ask("stays"), line.ask("leaves")
    await some_turns()
    leaves.cancel()
    line.quick.gate.set()
    assert await stays == [("GET", "stays")]
    assert leaves.cancelled()


async def test_what_nobody_waits_for_any_more_is_not_sent(line: Line) -> None:
    leaves = line.ask("leaves")
    await asyncio.sleep(0)
    leaves.cancel()
    await some_turns()
    assert line.quick.batches == []


async def test_what_is_large_goes_apart_and_keeps_nobody_waiting(line: Line) -> None:
    line.patient.gate.clear()
    large = asyncio.ensure_future(line.pipelined.run(SCRIPT, b"k", b"v" * (LARGE + 1)))
    for _ in range(10):
        assert await line.ask("small") == [("GET", "small")]
    assert not large.done()
    line.patient.gate.set()
    assert (await large)[0] == "EVALSHA"


async def test_a_script_that_the_server_has_not_seen_goes_with_its_text(line: Line) -> None:
    line.quick.knows_scripts = False
    answers = await line.pipelined.run_all(SCRIPT, [(b"one", 1), (b"two", 2)])
    assert answers == [("EVAL", SCRIPT.text, 1, b"one", 1), ("EVAL", SCRIPT.text, 1, b"two", 2)]
    assert [len(batch) for batch in line.quick.batches] == [2, 2]


async def test_who_waits_when_it_is_closed_is_told_that_there_is_no_answer(line: Line) -> None:
    line.quick.gate.clear()
    under_way = line.ask("under way")
    await some_turns()
    just_now = line.ask("just now")
    await asyncio.sleep(0)
    await line.pipelined.close()
    for asked in (under_way, just_now, line.ask("afterwards")):
        (answer,) = await asked
        assert isinstance(answer, ConnectionError)
    assert [command for batch in line.quick.batches for command in batch] == [("GET", "under way")]


async def test_a_batch_that_ends_with_the_process_leaves_nobody_waiting(line: Line) -> None:
    line.quick.gate.clear()
    asked = line.ask("k")
    await some_turns()
    await line.tasks.close(timeout=0)
    (answer,) = await asked
    assert isinstance(answer, ConnectionError)


async def test_a_fault_that_nobody_has_thought_of_is_logged_and_is_no_answer(line: Line) -> None:
    line.quick.failure = ZeroDivisionError("as it happens")
    with capture_logs() as lines:
        (answer,) = await line.ask("k")
    assert isinstance(answer, ConnectionError)
    assert [entry["log_level"] for entry in lines] == ["error"]
    line.quick.failure = None
    assert await line.ask("k") == [("GET", "k")]
