"""Observing: everything goes as it came, and what would have been folded is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson
import pytest
from structlog.testing import capture_logs

from proxy.events import Events
from proxy.folds import Folds
from proxy.lanes import Found, Relation
from proxy.messages import read_decompressed
from proxy.metrics import Metrics
from proxy.observing import Observing
from proxy.policies import Policies
from proxy.request import Request, Wishes
from proxy.sending import Sending
from proxy.settings.sections import Compression, Summarizer
from proxy.store.memory import MemoryStore
from proxy.tidings import Tidings
from proxy.writers import Writers
from tests.desk import Desk, desk, said

# A character is a token here.
LONG = "x" * 600
OBSERVE = Wishes("observe")


@dataclass
class Observatory:
    desk: Desk
    observing: Observing
    metrics: Metrics

    async def observed(self, turns: int, last: str | None = None, wishes: Wishes = OBSERVE) -> Sending:
        return await self.decided(await self.desk.request(said(*[LONG] * turns), wishes=wishes), last)

    async def decided(self, request: Request, last: str | None = None) -> Sending:
        assert request.found is not None
        lane = request.found.lane
        if last is not None:
            lane = msgspec.structs.replace(lane, fold=last)
        with capture_logs():
            decided = await self.observing.decide(replace(request, found=Found(lane, Relation.CONTINUED)))
        assert decided.form.chat is request.chat
        assert decided.fold is None
        assert decided.prepare is None
        assert decided.received == request.sized.counted.count
        return decided

    def told(self, trigger: str) -> float:
        labels = {"strategy": "summary", "trigger": trigger, "result": "observed"}
        return self.metrics.registry.get_sample_value("tailfold_folds_total", labels) or 0.0


@asynccontextmanager
async def observatory(window: int | None = 8_000, **settings: Any) -> AsyncIterator[Observatory]:
    async with desk(window=window) as one:
        metrics = Metrics()
        tidings = Tidings(metrics, Events(), tells=True)
        policies = Policies(Compression.model_validate({"retain_tokens": 700, **settings}), "localhost")
        imagined = Folds(MemoryStore(), one.writer, ttl=lambda: 3600.0)
        writers = Writers(one.sizing, Summarizer(), policies.settings.summary_max_tokens)
        yield Observatory(one, Observing(imagined, one.sizing, policies, writers, tidings), metrics)


async def test_a_short_conversation_would_not_be_folded() -> None:
    async with observatory() as one:
        decided = await one.observed(3)
        assert (decided.would, decided.freed) == (None, 0)
        assert (one.told("soft"), one.told("hard")) == (0, 0)


async def test_past_the_soft_trigger_a_fold_would_be_prepared_and_used_past_the_hard_one() -> None:
    async with observatory(min_tokens=0) as one:
        assert (await one.observed(6)).would is None
        assert (one.told("soft"), one.told("hard")) == (1, 0)
        decided = await one.observed(7)
        assert decided.would is not None
        assert decided.freed > 0
        assert (one.told("soft"), one.told("hard")) == (1, 0)


async def test_a_conversation_that_comes_full_would_be_folded_at_once() -> None:
    async with observatory() as one:
        decided = await one.observed(21)
        fold = decided.would
        assert fold is not None
        assert one.told("hard") == 1
        assert decided.freed > 5_000
        assert fold.summary_tokens < fold.original_tokens / 5
        assert fold.covers >= 18
        assert fold.messages == ()


async def test_the_same_fold_is_imagined_once_and_would_be_used_again() -> None:
    async with observatory() as one:
        first = (await one.observed(21)).would
        assert first is not None
        again = await one.observed(23, first.id)
        assert again.would == first
        assert again.freed == 0
        assert one.told("hard") == 1


async def test_a_window_that_nobody_has_told_folds_nothing() -> None:
    async with observatory(window=None) as one:
        assert (await one.observed(41)).would is None


@pytest.mark.parametrize("wishes", [Wishes("observe", "off"), OBSERVE])
async def test_where_nothing_is_folded_nothing_would_be(wishes: Wishes) -> None:
    async with observatory(enabled=wishes.strategy is not None) as one:
        assert (await one.observed(21, wishes=wishes)).would is None


async def test_what_cannot_be_folded_would_not_be() -> None:
    async with observatory() as one:
        plain = orjson.dumps({"model": "m", "messages": said(*[LONG] * 21)})
        request = await one.desk.request_of(read_decompressed(b"compressed", plain), OBSERVE)
        assert (await one.decided(request)).would is None
        assert (await one.decided(replace(request, line=None))).would is None
