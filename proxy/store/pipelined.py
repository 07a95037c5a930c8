"""Commands that are asked for at once go out together, over a few connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError, NoScriptError

from proxy.store.redis_asking import Asking, Command
from proxy.store.redis_scripts import Script
from proxy.tasks import Tasks

# Under way at one time: the next ones gather meanwhile, so that batches grow with the load.
_MOST_UNDER_WAY = 4
# What is larger takes another way, so that nobody else's answer waits behind it.
LARGE = 512 * 1024


class _Waiting(NamedTuple):
    commands: Sequence[Command]
    answers: asyncio.Future[list[Any]]


class Pipelined:
    def __init__(self, asking: Asking, patient: Asking, tasks: Tasks) -> None:
        """What is large goes through the patient one, as it takes its time even where all is well."""
        self._usual = _Line(asking, tasks)
        self._large = _Line(patient, tasks)

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The answers in order, with an error in the place of one that there is not."""
        line = self._large if _size(commands) > LARGE else self._usual
        return await line.ask(commands)

    async def run(self, script: Script, key: bytes, *values: Any) -> Any:
        (answer,) = await self.run_all(script, [(key, *values)])
        return answer

    async def run_all(self, script: Script, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """A script for several keys, with its text where a server has not seen it since its start."""
        answers = await self.ask([("EVALSHA", script.name, 1, *call) for call in calls])
        unseen = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unseen:
            again = await self.ask([("EVAL", script.text, 1, *calls[number]) for number in unseen])
            for number, answer in zip(unseen, again, strict=True):
                answers[number] = answer
        if failure := next((answer for answer in answers if isinstance(answer, Exception)), None):
            raise failure
        return answers

    async def close(self) -> None:
        """Whoever still waits is told that there is no answer."""
        await self._usual.close()
        await self._large.close()


class _Line:
    def __init__(self, asking: Asking, tasks: Tasks) -> None:
        self._asking = asking
        self._tasks = tasks
        self._waiting: list[_Waiting] = []
        self._under_way: set[asyncio.Task[list[Any]]] = set()
        self._is_called = False
        self._is_closed = False

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        if self._is_closed:
            return _unanswered(commands)
        waiting = _Waiting(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._call()
        return await waiting.answers

    async def close(self) -> None:
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        _tell(waiting, None)
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _call(self) -> None:
        if self._waiting and not self._is_called and len(self._under_way) < _MOST_UNDER_WAY:
            self._is_called = True
            # Not now: whoever else asks in this turn of the event loop comes along.
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_called = False
        batch, self._waiting = [each for each in self._waiting if not each.answers.done()], []
        if batch:
            asked = self._asking.answers([command for each in batch for command in each.commands])
            task = self._tasks.start(asked, name="ask the shared store")
            self._under_way.add(task)
            task.add_done_callback(partial(self._is_back, batch))

    def _is_back(self, batch: Sequence[_Waiting], task: asyncio.Task[list[Any]]) -> None:
        self._under_way.discard(task)
        failed = task.cancelled() or task.exception() is not None
        _tell(batch, None if failed else task.result())
        self._call()


def _tell(batch: Sequence[_Waiting], answers: list[Any] | None) -> None:
    start = 0
    for each in batch:
        end = start + len(each.commands)
        if not each.answers.done():
            each.answers.set_result(_unanswered(each.commands) if answers is None else answers[start:end])
        start = end


def _unanswered(commands: Sequence[Command]) -> list[Any]:
    return [ConnectionError("nobody was asked")] * len(commands)


def _size(commands: Sequence[Command]) -> int:
    return sum(len(part) for command in commands for part in command if type(part) is bytes)
