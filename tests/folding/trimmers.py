"""Clients that do not resend what they have sent before: each keeps its whole history to itself, and shows
another part of it with every request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from tests.folding.agent import prose
from tests.simulator.talk import Message, assistant, user

SYSTEM: Message = {"role": "system", "content": "You look after the harbour."}
BEFORE = 24  # exchanges that were had when the first request of a client is looked at
TURNS = 30

# What a client sends of all that was said until its n-th request.
Shape = Callable[[Sequence[Message], int], list[Message]]


@dataclass(frozen=True)
class Client:
    """How much is said in a turn, and what is shown of it."""

    shape: Shape
    words: int = 220
    before: int = BEFORE
    agent: bool = False
    grows: bool = False  # by a little in every turn: nothing is left out

    @cached_property
    def requests(self) -> list[list[Message]]:
        return [[SYSTEM, *self.shape(self._said(turn), turn)] for turn in range(TURNS)]

    @cached_property
    def trims_from(self) -> int:
        """The first request that does not begin as the one before; 0 where some have gone before it."""
        requests = self.requests
        if self.before:
            return 0
        return next(
            number
            for number in range(1, TURNS)
            if requests[number][: len(requests[number - 1])] != requests[number - 1]
        )

    def _said(self, turn: int) -> list[Message]:
        if not self.grows:
            return history(self.before + turn, self.words, agent=self.agent)
        later = [message for number in range(500, 501 + turn) for message in exchange(number, 8)]
        return [*history(self.before, self.words), assistant("Yes."), *later[:-1]]


@cache
def exchange(number: int, words: int) -> list[Message]:
    """A question, its answer."""
    return [
        user(f"Turn {number}: {prose(number, words)}"),
        assistant(f"Answer {number}: {prose(number + 900, 12)}"),
    ]


@cache
def step(number: int, words: int) -> list[Message]:
    """An agent's: a call, its result, and a word about it. Every third time it is told something."""
    id = f"call_{number}"
    function = {"name": "look", "arguments": f'{{"at":{number}}}'}
    calling: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }
    result: Message = {"role": "tool", "tool_call_id": id, "content": prose(number, words)}
    told = (
        [*([assistant("Done.")] if number else []), user(f"Turn {number}: go on.")] if number % 3 == 0 else []
    )
    return [*told, calling, result]


def history(turns: int, words: int, *, agent: bool = False) -> list[Message]:
    """All that was said in so many turns, and the new question or result."""
    one = step if agent else exchange
    said = [message for number in range(turns) for message in one(number, words)]
    return said if agent else [*said, user(f"Turn {turns}: {prose(turns, words)}")]


def newest(count: int) -> Shape:
    return lambda said, _: [*said[-count:]]


def newest_steps(count: int) -> Shape:
    """Never beginning with a result whose call is left out."""

    def trimmed(said: Sequence[Message], _: int) -> list[Message]:
        kept = [*said[-count:]]
        return kept[1:] if kept[0]["role"] == "tool" else kept

    return trimmed


def one_message_less_each_time(said: Sequence[Message], turn: int) -> list[Message]:
    return [*said[turn * 2 + turn % 2 :]]


def one_turn_less_each_time(said: Sequence[Message], turn: int) -> list[Message]:
    return [*said[turn * 2 :]]


def first_and_newest(count: int) -> Shape:
    return lambda said, _: [*said] if len(said) <= count + 2 else [said[0], *said[-count:]]


def first_exchange_and_newest(count: int) -> Shape:
    return lambda said, _: [*said[:2], *said[-count:]]


def own_summary_and_newest(count: int) -> Shape:
    return lambda said, turn: [user(f"So far, as of turn {turn}, all is well."), *said[-count:]]


def first_own_summary_and_newest(count: int) -> Shape:
    def summed_up(said: Sequence[Message], turn: int) -> list[Message]:
        if len(said) <= count + 2:
            return [*said]
        return [said[0], assistant(f"As of turn {turn} all is well."), *said[-count:]]

    return summed_up


def clock_in_the_first(said: Sequence[Message], turn: int) -> list[Message]:
    return [user(f"It is minute {turn}. {said[0]['content']}"), *said[1:]]


def context_after_the_first(said: Sequence[Message], turn: int) -> list[Message]:
    return [*said[:2], user(f"<context>{prose(turn, 60)} {turn}</context>"), assistant("Noted."), *said[2:]]


def results_cleared(after: int) -> Shape:
    """All but the newest results."""

    def cleared(said: Sequence[Message], _: int) -> list[Message]:
        results = [place for place, message in enumerate(said) if message["role"] == "tool"]
        old = set(results[:-after])
        return [
            {**message, "content": "[cleared]"} if place in old else message
            for place, message in enumerate(said)
        ]

    return cleared


def to_a_budget(characters: int) -> Shape:
    """The newest exchanges that are no longer than this together."""

    def trimmed(said: Sequence[Message], _: int) -> list[Message]:
        kept, taken = len(said), 0
        while kept and (taken := taken + len(str(said[kept - 1]["content"]))) <= characters:
            kept -= 1
        return [*said[max(0, kept) :]]

    return trimmed


def every(turns: int, count: int) -> Shape:
    """Nothing is left out between two trimmings."""

    def trimmed(said: Sequence[Message], turn: int) -> list[Message]:
        since = turn % turns
        return [*said[-(count + 2 * since) :]]

    return trimmed


def all_but_the_newest_summed_up(said: Sequence[Message], turn: int) -> list[Message]:
    """A summary of the client's own, which is long, and nothing that was sent before."""
    return [
        user(f"So far, as of turn {turn}: {prose(turn, 4_000)}"),
        assistant(f"I have read what was said until turn {turn}."),
        said[-1],
    ]


def first_and_summed_up(said: Sequence[Message], turn: int) -> list[Message]:
    return [said[0], assistant("Yes."), *all_but_the_newest_summed_up(said, turn)]


CLIENTS = {
    "the newest messages": Client(newest(41)),
    "a few large messages": Client(newest(7), words=1200),
    "one message less each time": Client(one_message_less_each_time),
    "one turn less each time": Client(one_turn_less_each_time),
    "the first and the newest": Client(first_and_newest(41)),
    "the first and a few, from the beginning": Client(first_and_newest(7), words=900, before=0),
    "the first exchange and the newest": Client(first_exchange_and_newest(41)),
    "a summary of its own": Client(own_summary_and_newest(41)),
    "the first and a summary of its own": Client(first_own_summary_and_newest(7), words=900, before=0),
    "a clock in the first": Client(clock_in_the_first, grows=True),
    "context that is rendered anew": Client(context_after_the_first, grows=True),
    "a few results that are not cleared": Client(results_cleared(3), words=1500, agent=True),
    "results cleared later": Client(results_cleared(10), words=600, agent=True),
    "an agent's newest steps": Client(newest_steps(40), agent=True),
    "to a budget": Client(to_a_budget(30_000)),
    "every other turn": Client(every(2, 35)),
    "every third turn": Client(every(3, 35)),
    "every tenth turn": Client(every(10, 31)),
}
# Of these nothing is left by which they could be known but the conversation's name.
NAMED_ONLY = {
    "nothing that was sent before": Client(all_but_the_newest_summed_up),
    "hardly more than the answer": Client(newest(3), words=2500),
    "the first message alone": Client(first_and_summed_up),
}
