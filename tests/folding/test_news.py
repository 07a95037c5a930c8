"""A fold is told as new once in its conversation, whatever becomes of the request that has told it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from structlog.testing import capture_logs

from proxy.simulator import Fault
from tests.folding.agent import Agent, Stage, prose, small, stage
from tests.folding.test_isolation import full
from tests.simulator.talk import user


async def prepared(on: Stage) -> Agent:
    """At its trigger, with a fold that is ready and that no request was sent with yet."""
    agent = full(on)
    await agent.step()
    await on.folded()
    agent.messages.append(user("And then? " + prose(9, 900)))
    return agent


def told(logs: Iterable[Mapping[str, object]]) -> list[object]:
    return [log["fold"] for log in logs if log["event"] == "fold_used"]


async def test_a_request_that_fails_has_told_it() -> None:
    async with stage() as on:
        agent = await prepared(on)
        with capture_logs() as logs:
            on.upstream.fail_next(Fault.SERVER_ERROR)
            failed = await agent.send()
            again = await agent.step()
        assert (failed.status, failed.action) == (500, "fold")
        assert (again.status, again.action, again.fold) == (200, "reuse", failed.fold)
        assert told(logs) == [failed.fold]
        assert (await agent.say("Go on.")).action == "reuse"


async def test_many_at_once_tell_it_once() -> None:
    async with stage() as on:
        agent = await prepared(on)
        others = [agent.copy() for _ in range(10)]
        for number, other in enumerate(others):
            other.messages[-1] = user(f"And then, {number}? {prose(9, 900)}")
        with capture_logs() as logs:
            answers = await asyncio.gather(*(one.send() for one in [agent] * 10 + others))
        assert [answer.status for answer in answers] == [200] * 20
        assert len({answer.fold for answer in answers}) == 1
        assert sorted(answer.action for answer in answers) == ["fold", *["reuse"] * 19]
        assert told(logs) == [answers[0].fold]


async def test_many_that_wait_for_it_tell_it_once() -> None:
    async with stage() as on:
        agent = full(on)
        agent.messages += [{"role": "assistant", "content": prose(3, 2_500)}, user("Go on.")]
        answers = await asyncio.gather(*(agent.send() for _ in range(10)))
        assert sorted(answer.action for answer in answers) == ["fold", *["reuse"] * 9]


async def test_an_answer_that_is_generated_anew_or_to_another_question_tells_nothing_new() -> None:
    async with stage() as on:
        agent = await prepared(on)
        first = await agent.send()
        again = await agent.send()
        agent.messages[-1] = user("And what else? " + prose(8, 900))
        edited = await agent.send()
        assert [one.action for one in (first, again, edited)] == ["fold", "reuse", "reuse"]
        assert len({one.fold for one in (first, again, edited)}) == 1


async def test_a_history_that_was_rewritten_behind_the_fold_tells_nothing_new() -> None:
    async with stage() as on:
        agent = await prepared(on)
        await agent.step()
        await agent.say("Go on.")
        agent.messages[-4] = {"role": "assistant", "content": "Rewritten."}
        assert (await agent.say("And on.")).action == "reuse"


async def test_a_request_that_is_sent_once_more_in_another_form_tells_it_still() -> None:
    """Refused for the role of its summary."""
    async with stage(small(strict_template=True), compression={"summary_role": "system"}) as on:
        agent = await prepared(on)
        assert (await agent.step()).action == "fold"
        assert on.proxy.metric("tailfold_upstream_resends_total", reason="role") == 1


async def test_it_stays_told_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    async with stage(store=store) as on:
        agent = await prepared(on)
        first = await agent.step()
    async with stage(store=store) as on:
        answer = await on.agent(*agent.messages, user("Go on.")).send()
    assert (first.action, answer.action, answer.fold) == ("fold", "reuse", first.fold)
