"""What the head of an answer says of its folding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.announcing import Announced, actions, announcement, warnings
from proxy.counting.anchors import Basis
from proxy.events import Events
from proxy.fold.record import Fold, Kind
from proxy.lanes import Found, Lane, Relation
from proxy.metrics import Metrics
from proxy.request import Request, Wishes
from proxy.sending import Sending, as_it_came
from proxy.tidings import Tidings
from proxy.weighing import Form
from tests.desk import called, desk, said
from tests.fold.chats import chat
from tests.fold.lanes import fold_of

PAST = chat("u a u a u")


async def request(**fields: Any) -> Request:
    async with desk() as one:
        return await one.request(said("hello"), **fields)


def folded(of: Request, fold: Fold) -> Sending:
    return Sending(Form(of.chat, of.sized, fold), of.sized.counted.count)


def after(of: Request, fold: str) -> Request:
    lane = Lane(id="l", conversation="c", began=0.0, length=1, fold=fold)
    return replace(of, found=Found(lane, Relation.CONTINUED))


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (Kind.SUMMARY, "fold"),
        (Kind.EXTRACT, "extract"),
        (Kind.SHRUNK, "truncate"),
        (Kind.TRUNCATION, "truncate"),
    ],
)
async def test_a_fold_is_told_by_its_kind_the_first_time_and_as_the_same_again_then(
    kind: Kind, action: str
) -> None:
    of, fold = await request(), fold_of(PAST, 2, kind=kind)
    assert actions(of, folded(of, fold), is_news=True) == [action]
    assert actions(of, folded(of, fold), is_news=False) == ["reuse"]


async def test_a_fold_is_news_once_in_its_conversation() -> None:
    of, fold = await request(), fold_of(PAST, 2)
    with capture_logs() as logs:
        announced = Announced(Tidings(Metrics(), Events(), tells=True))
        for is_news in (True, False, False):
            assert announced.is_news(of, folded(of, fold)) is is_news
            assert announced.tell(of, folded(of, fold)) is is_news
        elsewhere = replace(of, conversation=called("another"))
        assert announced.tell(elsewhere, folded(elsewhere, fold))
        assert announced.tell(of, folded(of, fold_of(PAST, 4)))
        # A line that was sent with it before, by another worker or before a restart.
        assert not announced.tell(after(of, "fold-3"), folded(of, fold_of(PAST, 3)))
        assert not announced.tell(of, folded(of, fold_of(PAST, 3)))
        assert not announced.tell(of, as_it_came(of))
    told = [(log["event"], log["conversation"], log["fold"]) for log in logs]
    assert told == [
        ("fold_used", "c", "fold-2"),
        ("fold_used", "another", "fold-2"),
        ("fold_used", "c", "fold-4"),
    ]


async def test_what_only_would_have_been_sent_is_news_too_and_no_event() -> None:
    of = await request(wishes=Wishes("observe"))
    would = replace(as_it_came(of), would=fold_of(PAST, 4))
    with capture_logs() as logs:
        announced = Announced(Tidings(Metrics(), Events(), tells=True))
        assert announced.tell(of, would)
        assert not announced.tell(of, would)
    assert logs == []


async def test_what_goes_as_it_came_is_passed_on() -> None:
    of = await request()
    assert actions(of, as_it_came(of), is_news=False) == ["pass"]


async def test_observing_is_told_with_what_would_have_been_done() -> None:
    of = await request(wishes=Wishes("observe"))
    assert actions(of, as_it_came(of), is_news=False) == ["observe"]
    would = replace(as_it_came(of), would=fold_of(PAST, 4, 2))
    assert actions(of, would, is_news=True) == ["observe", "fold"]
    told = dict(announcement(of, would, is_news=True, folding=True))
    assert told[b"X-Tailfold-Action"] == b"observe, fold"
    assert told[b"X-Tailfold-Folded-Messages"] == b"3"


async def test_the_head_tells_conversation_sizes_and_fold() -> None:
    of = await request(conversation="my chat", max_tokens=100)
    sized = of.sized
    fold = fold_of(PAST, 4, 2)
    sending = replace(folded(of, fold), received=replace(sized.counted.count, tokens=900))
    assert announcement(of, sending, is_news=True, folding=True) == [
        (b"X-Conversation-Id", b"my chat"),
        (b"X-Conversation-Source", b"header"),
        (b"X-Tailfold-Tokens", b"%d" % sized.counted.count.tokens),
        (b"X-Tailfold-Limit", b"7500"),
        (b"X-Tailfold-Action", b"fold"),
        (b"X-Tailfold-Original-Tokens", b"900"),
        (b"X-Tailfold-Folded-Messages", b"3"),
        (b"X-Tailfold-Fold", b"fold-4"),
    ]
    assert len(announcement(of, as_it_came(of), is_news=True, folding=True)) == 6


async def test_who_wants_nothing_told_of_folds_is_told_the_rest() -> None:
    of = await request()
    sending = replace(folded(of, fold_of(PAST, 2)), warnings=("summary_late",))
    names = [name for name, _ in announcement(of, sending, is_news=True, folding=False)]
    assert names == [
        b"X-Conversation-Id",
        b"X-Conversation-Source",
        b"X-Tailfold-Tokens",
        b"X-Tailfold-Limit",
        b"X-Tailfold-Warning",
    ]


async def test_a_rough_count_is_the_first_of_the_warnings() -> None:
    of = await request()
    counted = of.sized.counted
    rough = replace(of.sized, counted=replace(counted, count=replace(counted.count, basis=Basis.ROUGH)))
    sending = replace(as_it_came(replace(of, sized=rough)), warnings=("summary_failed",))
    assert warnings(sending) == ["rough_count", "summary_failed"]
    told = dict(announcement(of, sending, is_news=True, folding=True))
    assert told[b"X-Tailfold-Warning"] == b"rough_count, summary_failed"
    assert warnings(as_it_came(of)) == []
    assert b"X-Tailfold-Warning" not in dict(announcement(of, as_it_came(of), is_news=True, folding=True))
