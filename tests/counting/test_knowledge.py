from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from proxy.counting import anchors
from proxy.counting.anchors import Anchor, Known, Lesson, Opening
from proxy.counting.calibration import Calibration, first_calibration
from proxy.counting.estimate import NOTHING, Estimate
from proxy.counting.framing import Scheme
from proxy.counting.prompt import Prompt
from proxy.ports import NOBODY, Space
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.writing import KEPT
from tests.counting.peers import ALICE, BOB, Life, asked, life, message, talk
from tests.store.doubles import Switched


class Asked(MemoryStore):
    """Remembers which questions it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[bytes, Space, int]] = []

    async def get(self, tenant: bytes, space: Space, keys: Any) -> dict[bytes, bytes]:
        if space is not Space.COUNTS:
            self.questions.append((tenant, space, len(keys)))
        return await super().get(tenant, space, keys)


class Kept(MemoryStore):
    """Remembers for how long it was to keep what."""

    def __init__(self) -> None:
        super().__init__()
        self.times: defaultdict[Space, set[float]] = defaultdict(set)

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        self.times[space].add(ttl)
        await super().put(tenant, space, values, ttl=ttl)


async def prompt_of(one: Life, messages: list[Any], tenant: bytes = ALICE, **fields: Any) -> Prompt:
    return (await one.measure(tenant, asked(messages, **fields), Scheme())).measured.prompt


async def known(one: Life, prompt: Prompt, tenant: bytes = ALICE, model: str = "m") -> Known:
    return await one.known(tenant, model, prompt, 1.0)


def billed(prompt: Prompt, tokens: int) -> Lesson:
    return Lesson(anchor=Anchor(tokens, prompt.outside.digest, prompt.outside.estimate))


# Anchors.


async def test_the_newest_anchor_is_found() -> None:
    history = talk("s u a u a u")
    async with life() as one:
        for length, tokens in ((2, 20), (4, 40)):
            prompt = await prompt_of(one, history[:length])
            one.knowledge.learn(ALICE, "m", prompt, billed(prompt, tokens))
        found = await known(one, await prompt_of(one, history))
        assert found.anchor is not None
        assert (found.anchor.billed, found.anchored_at) == (40, 3)  # the system message is not in the chain
        edited = [*history[:3], message("u", "else"), *history[4:]]
        found = await known(one, await prompt_of(one, edited))
        assert found.anchor is not None
        assert (found.anchor.billed, found.anchored_at) == (20, 1)


async def test_an_anchor_is_for_one_upstream_one_model_one_caller_and_one_history() -> None:
    store = MemoryStore()
    history = talk("u a u")
    async with life(store) as one:
        prompt = await prompt_of(one, history)
        one.knowledge.learn(ALICE, "m", prompt, billed(prompt, 30))
        assert (await known(one, prompt)).anchor is not None
        assert (await known(one, prompt, model="n")).anchor is None
        assert (await known(one, await prompt_of(one, history, BOB), BOB)).anchor is None
        assert (await known(one, await prompt_of(one, talk("u u u")))).anchor is None
    async with life(store, upstream="http://two/v1") as elsewhere:
        assert (await known(elsewhere, await prompt_of(elsewhere, history))).anchor is None
    async with life(store) as again:
        assert (await known(again, await prompt_of(again, history))).anchor == billed(prompt, 30).anchor


async def test_changed_instructions_or_tools_correct_an_anchor_by_the_difference() -> None:
    history = talk("s u a u")
    tools = [{"name": "look", "description": "around, and say what is there"}]
    async with life() as one:
        prompt = await prompt_of(one, history)
        one.knowledge.learn(ALICE, "m", prompt, billed(prompt, 100))
        plain = anchors.count(prompt, await known(one, prompt))
        assert (plain.tokens, plain.exact) == (100, 100)
        for changed in (
            await prompt_of(one, history, tools=tools),
            await prompt_of(one, [message("s", "it is a quarter past twelve"), *history[1:]]),
        ):
            assert changed.outside.digest != prompt.outside.digest
            count = anchors.count(changed, await known(one, changed))
            difference = changed.outside.estimate - prompt.outside.estimate
            assert count.estimated == difference
            assert count.tokens == 100 + difference.plain


async def test_an_anchor_from_before_a_restart_is_found() -> None:
    store = Asked()
    history = talk("s " + "u a " * 20 + "u")
    async with life(store) as before:
        prompt = await prompt_of(before, history[:38])
        before.knowledge.learn(ALICE, "m", prompt, billed(prompt, 380))
    async with life(store) as after:
        found = await known(after, await prompt_of(after, history))
        assert found.anchor is not None
        assert (found.anchor.billed, found.anchored_at) == (380, 37)


@pytest.mark.parametrize("instructions", ["", "s "])
async def test_a_first_request_that_is_sent_again_after_a_restart_finds_its_anchor(instructions: str) -> None:
    store = MemoryStore()
    history = talk(instructions + "u a u")
    first = history[:-2]
    async with life(store) as before:
        prompt = await prompt_of(before, first)
        before.knowledge.learn(ALICE, "m", prompt, billed(prompt, 1_110))
    async with life(store) as after:
        assert (await known(after, await prompt_of(after, first))).anchor == billed(prompt, 1_110).anchor
        found = await known(after, await prompt_of(after, history))
        assert (found.anchor, found.anchored_at) == (billed(prompt, 1_110).anchor, 1)


async def test_a_conversation_that_begins_asks_the_store_once_for_its_anchor_and_its_opening() -> None:
    store = Asked()
    async with life(store) as one:
        await known(one, await prompt_of(one, talk("s u")))
        begins = [(NOBODY, Space.CALIBRATIONS, 1), (ALICE, Space.ANCHORS, 2)]
        assert sorted(store.questions) == begins
        store.questions.clear()
        await known(one, await prompt_of(one, talk("s u")))
        assert store.questions == []
        await known(one, await prompt_of(one, [*talk("s"), message("u", "another conversation")]))
        assert sorted(store.questions) == begins


async def test_what_another_worker_has_learned_from_is_known_where_it_has_answered() -> None:
    store = MemoryStore()
    history = talk("s u a u a u")
    async with life(store) as one, life(store) as other:
        for worker in (one, other):
            await known(worker, await prompt_of(worker, history[:2]))
        prompt = await prompt_of(other, history[:4])
        wiser = first_calibration(1.1).learned(Estimate(tokens=1_000), 1_200)
        taught = Lesson(opening=Opening(77.0, 1.0), calibration=wiser)
        other.knowledge.learn(ALICE, "m", prompt, taught)
        await other.writer.drain(60)
        found = await known(one, await prompt_of(one, history))
        assert (found.calibration, found.opening) == (wiser, taught.opening)
        # Whoever is wiser by then stays so.
        one.knowledge.learn(ALICE, "m", prompt, Lesson(calibration=wiser.learned(Estimate(tokens=500), 600)))
        other.knowledge.learn(ALICE, "m", prompt, Lesson(calibration=wiser))
        await other.writer.drain(60)
        found = await known(one, await prompt_of(one, [*history, message("a", "so"), message("u", "on")]))
        assert found.calibration.seen == 2


async def test_bills_are_kept_for_no_longer_than_was_said() -> None:
    store = Kept()
    async with life(store, kept=7.0) as one:
        prompt = await prompt_of(one, talk("s u"))
        await known(one, prompt)
        taught = replace(billed(prompt, 20), opening=Opening(7.0, 1.0), calibration=first_calibration(1.1))
        one.knowledge.learn(ALICE, "m", prompt, taught)
    assert store.times == {Space.ANCHORS: {7.0}, Space.CALIBRATIONS: {KEPT}}


async def test_another_workers_newer_anchor_is_found() -> None:
    store = MemoryStore()
    history = talk("u a u a u")
    async with life(store) as one, life(store) as other:
        for worker, length in ((one, 1), (other, 3)):
            prompt = await prompt_of(worker, history[:length])
            await known(worker, prompt)
            worker.knowledge.learn(ALICE, "m", prompt, billed(prompt, 10 * length))
            await worker.writer.drain(60)
        found = await known(one, await prompt_of(one, history))
        assert found.anchor is not None
        assert (found.anchor.billed, found.anchored_at) == (30, 3)


async def test_two_conversations_with_the_same_beginning_both_find_their_anchors_after_a_restart() -> None:
    store = MemoryStore()
    opening = talk("s u")
    ways = [[*opening, message("a", name), *talk("u a u a u")] for name in ("one", "two")]
    async with life(store) as before:
        for tokens, way in enumerate(ways, 100):
            prompt = await prompt_of(before, way[:6])
            before.knowledge.learn(ALICE, "m", prompt, billed(prompt, tokens))
    async with life(store) as after:
        for tokens, way in enumerate(ways, 100):
            found = await known(after, await prompt_of(after, way))
            assert found.anchor is not None
            assert found.anchor.billed == tokens


async def test_the_store_is_not_asked_again_for_what_this_process_has_seen() -> None:
    store = Asked()
    history = talk("s u a u t a u a u")
    async with life(store) as one:
        await known(one, await prompt_of(one, history[:4]))
        store.questions.clear()
        for length in (4, 6, 7, 9):  # nothing is ever billed here
            await known(one, await prompt_of(one, history[:length]))
        assert store.questions == []


async def test_after_a_change_of_model_the_store_is_asked_for_the_other_ones_anchors() -> None:
    store = MemoryStore()
    history = talk("u a u a u")
    async with life(store) as before:
        prompt = await prompt_of(before, history[:3])
        before.knowledge.learn(ALICE, "n", prompt, billed(prompt, 30))
    async with life(store) as after:
        await known(after, await prompt_of(after, history[:3]), model="m")
        found = await known(after, await prompt_of(after, history), model="n")
        assert found.anchor is not None


async def test_a_request_of_instructions_alone_leaves_no_anchor() -> None:
    store = MemoryStore()
    async with life(store) as one:
        prompt = await prompt_of(one, talk("s"))
        await known(one, prompt)
        one.knowledge.learn(ALICE, "m", prompt, billed(prompt, 10))
        assert (await known(one, prompt)).anchor is None


# Openings and calibrations.


async def test_an_opening_is_for_the_same_instructions_and_tools() -> None:
    store = MemoryStore()
    tools = [{"name": "look"}]
    async with life(store) as before:
        prompt = await prompt_of(before, talk("s u"), tools=tools)
        assert (await known(before, prompt)).opening is None
        before.knowledge.learn(ALICE, "m", prompt, Lesson(opening=Opening(50, 1)))
        assert before.knowledge.opening("m", prompt) == Opening(50, 1)
    async with life(store) as after:
        other = [*talk("s"), message("u", "another conversation")]
        assert (await known(after, await prompt_of(after, other, tools=tools))).opening == Opening(50, 1)
        assert (await known(after, await prompt_of(after, other))).opening is None
        assert (await known(after, await prompt_of(after, talk("d u"), tools=tools))).opening is None
        assert (await known(after, await prompt_of(after, other, BOB, tools=tools), BOB)).opening is None


async def test_an_opening_in_the_store_is_not_written_over_by_one_who_never_read_it() -> None:
    store = MemoryStore()
    history = talk("s u a u")
    async with life(store) as before:
        prompt = await prompt_of(before, history[:2])
        await known(before, prompt)
        lesson = billed(prompt, 20)
        before.knowledge.learn(ALICE, "m", prompt, Lesson(anchor=lesson.anchor, opening=Opening(50, 1)))
    async with life(store) as after:
        prompt = await prompt_of(after, history)
        after.knowledge.learn(ALICE, "m", prompt, Lesson(opening=Opening(70, 20)))
    async with life(store) as later:
        other = [*talk("s"), message("u", "another conversation")]
        assert (await known(later, await prompt_of(later, other))).opening == Opening(50, 1)


async def test_a_calibration_is_for_a_model_at_an_upstream_whoever_asks() -> None:
    store = MemoryStore()
    wiser = first_calibration(1.0).learned(Estimate(tokens=100), 120)
    async with life(store) as before:
        prompt = await prompt_of(before, talk("u"))
        assert (await known(before, prompt)).calibration == first_calibration(1.0)
        before.knowledge.learn(ALICE, "m", prompt, Lesson(calibration=wiser))
        assert before.knowledge.calibration("m", 1.0) == wiser
        assert before.knowledge.calibration("n", 1.25) == first_calibration(1.25)
    async with life(store) as after:
        assert (await known(after, await prompt_of(after, talk("u"), BOB), BOB)).calibration == wiser
        assert (await known(after, prompt, model="n")).calibration == first_calibration(1.0)
    async with life(store, upstream="http://two/v1") as elsewhere:
        assert (await known(elsewhere, prompt)).calibration == first_calibration(1.0)


# What the store may do.


class Foreign(MemoryStore):
    """Written by another version: every value reads differently."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self.value = value

    async def get(self, tenant: bytes, space: Space, keys: Any) -> dict[bytes, bytes]:
        return dict.fromkeys(keys, self.value)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\xff", b"\x93\xa1a\xa1b\xa1c", b"{}", b"\x90"])
async def test_a_value_of_another_version_is_a_miss(value: bytes) -> None:
    async with life(Foreign(value)) as one:
        found = await known(one, await prompt_of(one, talk("s u a u")))
    assert found == Known(first_calibration(1.0))


async def test_a_store_that_fails_is_a_miss_and_what_is_learned_meanwhile_is_known() -> None:
    store = Switched()
    store.trouble = Outage("unavailable", "gone")
    async with life(store) as one:
        prompt = await prompt_of(one, talk("u a u"))
        assert await known(one, prompt) == Known(first_calibration(1.0))
        one.knowledge.learn(ALICE, "m", prompt, billed(prompt, 30))
        assert (await known(one, prompt)).anchor == billed(prompt, 30).anchor


async def test_what_is_learned_is_stored_under_digests_for_the_one_who_paid() -> None:
    class Watched(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.put_down: dict[tuple[bytes, Space], dict[bytes, bytes]] = {}

        async def put(self, tenant: bytes, space: Space, values: Any, *, ttl: float) -> None:
            self.put_down.setdefault((tenant, space), {}).update(values)

    store = Watched()
    async with life(store) as one:
        prompt = await prompt_of(one, [message("s", "confidential"), message("u", "secretive")])
        await known(one, prompt, model="gpt-confidential")
        wiser = Calibration((1.0, 0.0, 0.0, 3.0), seen=1)
        anchor = Anchor(10, prompt.outside.digest, NOTHING)
        one.knowledge.learn(ALICE, "gpt-confidential", prompt, Lesson(False, anchor, Opening(1, 1), wiser))
    assert set(store.put_down) == {(ALICE, Space.ANCHORS), (NOBODY, Space.CALIBRATIONS)}
    written = [part for values in store.put_down.values() for pair in values.items() for part in pair]
    assert len(written) == 6
    assert not any(word in part for part in written for word in (b"confidential", b"secretive", b"http"))
