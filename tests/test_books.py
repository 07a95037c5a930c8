"""After an answer a line stands where the request has left it, and what was new about it is told once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from structlog.testing import capture_logs

from proxy.books import Books
from proxy.events import Events
from proxy.fold.record import Fold
from proxy.folds import Folds
from proxy.hearsay import Hearsay
from proxy.lanes import Lane, Relation
from proxy.metrics import Metrics
from proxy.naming import Naming
from proxy.prospects import Prospects
from proxy.records import Records
from proxy.request import Request
from proxy.sending import Begun, Sending, as_it_came
from proxy.tidings import Tidings
from proxy.weighing import Form
from tests.counting.peers import ALICE
from tests.desk import MONTH, Desk, called, desk, said
from tests.fold.chats import chat
from tests.fold.lanes import fold_of

LONG = "x" * 1_000


@dataclass
class Bookkeeping:
    desk: Desk
    books: Books
    metrics: Metrics
    events: Events

    async def answered(
        self, texts: list[str], fold: Fold | None = None, *, begun: Begun | None = None, **others: Any
    ) -> list[str]:
        """What is told when this has been sent, as it came or with a fold."""
        request = await self.desk.request(said(*texts))
        return await self.entered(request, sending(request, fold, **others), begun)

    async def entered(self, request: Request, sent: Sending, begun: Begun | None = None) -> list[str]:
        with self.events.listening() as listener, capture_logs():
            self.books.enter(request, sent, begun)
            self.books.tidings.warned(ALICE, "c", "that was all")
            told: list[str] = []
            async for event in listener:
                if event.data.get("warning") == "that was all":
                    return told
                told.append(event.kind)
        raise AssertionError

    async def lane(self, texts: list[str]) -> Lane:
        """As the next request finds it."""
        found = await self.desk.find(await self.desk.line(said(*texts)))
        assert found.relation is not Relation.NEW
        return found.lane

    def prefix(self, kind: str) -> float | None:
        return self.metrics.registry.get_sample_value("tailfold_prefix_tokens_total", {"kind": kind})


@asynccontextmanager
async def bookkeeping(window: int = 8_000) -> AsyncIterator[Bookkeeping]:
    async with desk(window=window) as one:
        metrics, events = Metrics(), Events()
        records = Records(one.writer, ttl=lambda: MONTH, keep_messages=True, clock=lambda: 5.0)
        tidings = Tidings(metrics, events, tells=True)
        folds = Folds(one.store, one.writer, ttl=lambda: MONTH)
        hearsay = Hearsay(one.writer, ttl=lambda: MONTH)
        books = Books(one.lanes, hearsay, folds, records, tidings, metrics, Naming(records, one.life.tasks))
        yield Bookkeeping(one, books, metrics, events)


def sending(request: Request, fold: Fold | None, **others: Any) -> Sending:
    came = as_it_came(request)
    return replace(came, form=Form(request.chat, request.sized, fold), **others)


def fold_called(name: str) -> Fold:
    return fold_of(chat("u a u a u"), 2, id=name)


async def test_where_a_line_stands_is_what_the_request_has_left() -> None:
    async with bookkeeping() as one:
        told = await one.answered(["one"])
        assert told == ["conversation_began"]
        lane = await one.lane(["one"])
        assert (lane.length, lane.fold, lane.filled, lane.prospects) == (1, None, 0, Prospects())
        assert lane.sent > 0
        assert [entry.at for entry in lane.entries] == [5.0]


async def test_what_was_said_can_be_read_then() -> None:
    async with bookkeeping() as one:
        await one.answered(["one"])
        await one.answered(["one", "two", "three"])
        await one.books.naming.settle()
        await one.desk.writer.drain(60)
        [tip] = await one.books.records.lanes(ALICE, "c")
        assert [turn.number for turn in await one.books.records.turns(ALICE, tip)] == [1, 2, 3]


async def test_of_whom_nothing_is_known_nothing_is_entered() -> None:
    async with bookkeeping() as one:
        request = await one.desk.request(said("one"))
        for stranger in (replace(request, line=None), replace(request, found=None)):
            assert await one.entered(stranger, as_it_came(stranger)) == []
        assert (await one.desk.find(await one.desk.line(said("one")))).relation is Relation.NEW


async def test_a_conversation_that_fills_the_room_is_told_once_for_each_mark() -> None:
    async with bookkeeping(window=4_000) as one:
        talk = ["begin"]
        kinds = []
        for _ in range(5):
            talk += ["short", LONG]
            kinds.append(await one.answered(talk))
        filled = [told.count("conversation_filled") for told in kinds]
        assert sum(filled) == 3
        assert (await one.lane(talk)).filled == 3
        assert await one.answered(["short"]) == ["conversation_began"]


async def test_a_line_knows_the_fold_that_it_was_last_sent_with() -> None:
    async with bookkeeping() as one:
        await one.answered(["one"])
        await one.answered(["one", "two", "three"], fold_called("f1"), freed=5_000)
        assert (await one.lane(["one", "two", "three"])).fold == "f1"
        longer = ["one", "two", "three", "four", "five"]
        await one.answered(longer, fold_called("f2"), freed=5_000)
        assert (await one.lane(longer)).fold == "f2"


async def test_warnings_are_told() -> None:
    async with bookkeeping() as one:
        assert await one.answered(["one"], warnings=("summary_late",)) == ["conversation_began", "warning"]


async def test_what_only_would_have_been_used_is_remembered_and_not_told() -> None:
    async with bookkeeping() as one:
        fold = fold_called("observed")
        assert await one.answered(["one"], would=fold, freed=5_000) == ["conversation_began"]
        assert (await one.lane(["one"])).fold == "observed"


# Folds in vain.


async def test_folds_in_a_row_that_free_too_little_are_counted() -> None:
    async with bookkeeping() as one:
        talk = ["begin"]
        for number, (freed, futile) in enumerate([(0, 1), (10, 2), (5_000, 0), (-50, 1)]):
            talk += ["answer", f"question {number}"]
            await one.answered(talk, fold_called(f"f{number}"), freed=freed)
            assert (await one.lane(talk)).prospects.futile == futile
        talk += ["answer", "again"]
        await one.answered(talk, fold_called("f3"))
        assert (await one.lane(talk)).prospects.futile == 1  # the same fold is no new one


async def test_what_is_being_made_is_remembered() -> None:
    async with bookkeeping() as one:
        line = await one.desk.line(said("one", "two", "three"))
        await one.answered(["one", "two", "three"], begun=Begun(line.chain[2], 99.0))
        prospects = (await one.lane(["one", "two", "three"])).prospects
        assert (prospects.making, prospects.until, prospects.unused) == (line.chain[2], 99.0, 0)
        assert one.books.hearsay.unused(ALICE, called("c")) == 1


async def test_folds_of_beginnings_that_the_client_rewrites_are_counted_until_one_is_used() -> None:
    async with bookkeeping() as one:
        last = ["answer", "question"]
        for number in range(3):
            texts = [f"rewritten {number}", *last, f"answer {number}", f"question {number}"]
            line = await one.desk.line(said(*texts))
            await one.answered(texts, begun=Begun(line.chain[2], 99.0))
            assert (await one.lane(texts)).prospects.unused == number
            last = texts[1:]
        fold = fold_called("f")
        talk = [*texts, "so", "on"]
        await one.answered(talk, fold, freed=5_000)
        await one.answered([*talk, "and", "on"], fold)
        assert (await one.lane([*talk, "and", "on"])).prospects.unused == 0


# What a provider can have cached.


async def test_what_repeats_the_last_request_is_told_from_what_is_new() -> None:
    async with bookkeeping() as one:
        await one.answered(["one"])
        first = (await one.lane(["one"])).sent
        assert (one.prefix("repeated"), one.prefix("new")) == (0, first)
        await one.answered(["one", "two", LONG])
        both = (await one.lane(["one", "two", LONG])).sent
        assert (one.prefix("repeated"), one.prefix("new")) == (first, both)
        # A fold changes the prefix: all of it is new.
        talk = ["one", "two", LONG, "four", "five"]
        await one.answered(talk, fold_called("f"), freed=1_000)
        folded = (await one.lane(talk)).sent
        assert (one.prefix("repeated"), one.prefix("new")) == (first, both + folded)
