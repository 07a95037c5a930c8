"""Who writes a summary, and how long that may become."""

from __future__ import annotations

import pytest

from proxy.fold.lengths import Lengths
from proxy.settings.sections import Summarizer
from proxy.windows.facts import ModelFacts
from proxy.writers import Writer, Writers
from tests.desk import Desk, desk, said

FACTS = ModelFacts(window=20_000, max_output=3_000, summary_model="small")


async def writer(one: Desk, model: str | None = None, *, most_tokens: int | None = None) -> Writer:
    request = await one.request(said("hello"), max_tokens=1_000)
    return Writers(one.sizing, Summarizer(model=model), most_tokens).of(request)


@pytest.mark.parametrize(("model", "preferred"), [(None, "small"), ("own", None), ("other", "other")])
async def test_the_model_maps_choice_writes_or_the_users(model: str | None, preferred: str | None) -> None:
    async with desk(facts=FACTS) as one:
        assert (await writer(one, model)).preferred == preferred


async def test_a_summary_is_bounded_by_the_writers_window_and_answer_the_room_and_the_user() -> None:
    async with desk(facts=FACTS) as one:
        room = 20_000 - 1_000 - 1_000  # without the answer and the margin
        assert (await writer(one)).lengths == Lengths(20_000, 3_000, room)
        assert (await writer(one, most_tokens=500)).lengths == Lengths(20_000, 3_000, room, 500)


async def test_of_a_writer_of_which_nobody_knows_anything_the_answer_may_have_any_length() -> None:
    async with desk(window=8_000) as one:
        lengths = (await writer(one)).lengths
        assert (lengths.window, lengths.longest_answer) == (8_000, Lengths().longest_answer)
