"""The model that is asked to sum up a conversation, good or bad at it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proxy.fold.transcript import BEGIN
from proxy.fold.wording import RECORD_WANTED
from proxy.simulator.answers import ApiError
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.faults import Fault, refusal
from proxy.simulator.notes import Task, notes
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.reply import Reply, ToolCall, calling, saying
from proxy.simulator.tokens import Counter, text_of
from proxy.simulator.validate import ChatRequest
from proxy.simulator.wire import Ending, Pause, Step, Until

# A good summary has at most a quarter of its transcript's tokens and half of those of the record before it,
# and so many even of the shortest.
SHARE = 4
RECORD_SHARE = 2
FEWEST_TOKENS = 24

REFUSAL = "I'm sorry, but I can't help with that."
PADDING = "Then, to tell it at even greater length, something of no importance came up once more. "
_OUR_WORDS = (b"transcript", b"record wanted")
CALL = ToolCall("call_instead_of_a_summary", "search", '{"query":"the conversation"}')


def asks_for_a_summary(messages: list[dict[str, Any]]) -> bool:
    text = text_of(messages[-1])
    return BEGIN in text or RECORD_WANTED in text


def is_summary_call(received: ReceivedRequest) -> bool:
    # Almost no request holds these words, and the others need not be parsed for them.
    if not received.header("content-encoding") and all(received.data.find(word) < 0 for word in _OUR_WORDS):
        return False
    match received.parsed:
        case {"messages": [*_, dict(last)]}:
            return asks_for_a_summary([last])
    return False


class SummaryModel:
    """Its manner and its delay may be changed at any time, and hold for what is asked from then on."""

    def __init__(self, config: SimulatorConfig, counter: Counter) -> None:
        self.manner = config.summaries
        self.delay = config.summary_delay
        self._config = config
        self._counter = counter
        self._may_begin = asyncio.Event()
        self._may_begin.set()

    @contextmanager
    def holding(self) -> Iterator[None]:
        self._may_begin.clear()
        try:
            yield
        finally:
            self._may_begin.set()

    def before(self, received: ReceivedRequest) -> Iterator[Step]:
        """What comes before a summary; nothing before any other answer."""
        if not is_summary_call(received):
            return
        if self.manner == "hang":
            yield Ending.HANG
        yield Until(self._may_begin)
        yield Pause(self.delay)

    def reply(self, request: ChatRequest) -> Reply:
        limit = self._config.answer_limit(request.max_answer)
        task = Task.asked_with(request.messages)
        match self.manner:
            case "error":
                raise self._error()
            case "tool_call":
                return calling((CALL,), self._counter)
            case "empty":
                return saying([], limit)
            case "refusal":
                return saying(self._pieces(REFUSAL), limit)
            case "echo":
                return saying(self._pieces(task.fenced), limit)
            case "inflated":
                return saying(
                    self._more_than("".join(map(text_of, request.messages))), None
                )  # heeds no limit, or it could not inflate
            case "good" | "hang":
                return saying(self._good(task, limit), limit)

    def _error(self) -> ApiError:
        error = refusal(Fault.SERVER_ERROR, self._config)
        assert error is not None
        return error

    def _pieces(self, text: str) -> list[str]:
        return self._counter.pieces(text, len(text))

    def _more_than(self, text: str) -> list[str]:
        return self._pieces(PADDING) * (2 + self._counter.count(text) // self._counter.count(PADDING))

    def _good(self, task: Task, limit: int | None) -> list[str]:
        count = self._counter.count
        most = max(FEWEST_TOKENS, count(task.transcript) // SHARE + count(task.record) // RECORD_SHARE)
        if limit is not None:
            most = min(most, limit)
        return self._counter.pieces(notes(task, most, count), most)
