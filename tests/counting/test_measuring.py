from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from proxy.counting import framing, measuring
from proxy.counting.estimate import Estimate
from proxy.counting.framing import Scheme
from proxy.counting.measuring import INLINE_BYTES, Limits, Measurer, scheme_key
from proxy.counting.prompt import digest_of
from proxy.counting.recollection import Recollection
from proxy.messages import ChatRequest, items, read
from proxy.ports import HOME_SIZE, Space
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.writing import KEPT, LateWriter
from proxy.tasks import Tasks
from tests.counting.peers import (
    ALICE,
    BOB,
    Broken,
    Letters,
    Life,
    Loaded,
    Loading,
    Missing,
    asked,
    life,
    message,
    talk,
)
from tests.store.doubles import FOREVER, Clock, Switched

SCHEME = Scheme()
LARGE = "word " * 8_000  # more than is counted on the event loop


async def measure(one: Life, chat: ChatRequest, tenant: bytes = ALICE, scheme: Scheme = SCHEME) -> Estimate:
    """As after an answered request: what was counted goes to the store."""
    found = await one.measure(tenant, chat, scheme)
    measuring.later(one.writer, tenant, found.fresh, KEPT)
    return found.measured.prompt.estimate


def said(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [each["content"] for each in messages]


# Nothing is counted twice.


async def test_a_conversations_thousandth_turn_counts_one_message() -> None:
    letters = Letters()
    history = talk("s " + "u a " * 1_000)
    async with life(encodings=Loaded(letters)) as one:
        await measure(one, asked(history[:1_999]))
        letters.texts.clear()
        await measure(one, asked(history[:2_000]))
        assert letters.texts == said(history[1_999:2_000])


async def test_every_turn_counts_what_is_new_in_it() -> None:
    letters = Letters()
    history = talk("s u a u t t a u")
    async with life(encodings=Loaded(letters)) as one:
        for length in range(1, len(history) + 1):
            await measure(one, asked(history[:length]))
    assert letters.texts == said(history)


@pytest.mark.parametrize("content", ["short", LARGE])
async def test_after_a_restart_what_was_counted_before_is_found(content: str) -> None:
    store, letters = MemoryStore(), Letters()
    history = [*talk("s u a"), message("u", content), *talk("a u")]
    tools = [{"type": "function", "function": {"name": "look", "description": "around"}}]
    async with life(store, Loaded(letters)) as before:
        first = await measure(before, asked(history, tools=tools))
    counted = len(letters.texts)
    async with life(store, Loaded(letters)) as after:
        assert await measure(after, asked(history, tools=tools)) == first
        assert len(letters.texts) == counted
        await measure(after, asked([*history, message("u", "new")], tools=tools))
        assert letters.texts[counted:] == ["new"]


async def test_a_message_that_is_said_twice_is_counted_once() -> None:
    letters = Letters()
    again = message("u", "again")
    async with life(encodings=Loaded(letters)) as one:
        twice = await measure(one, asked([again, again]))
        await measure(one, asked([message("u", "first"), again]))
        once = await measure(one, asked([again]))
    assert letters.texts == ["again", "first"]
    assert twice.tokens == 2 * once.tokens


async def test_what_was_counted_for_one_is_counted_anew_for_another() -> None:
    store, letters = MemoryStore(), Letters()
    async with life(store, Loaded(letters)) as one:
        assert await measure(one, asked(talk("u")), ALICE) == await measure(one, asked(talk("u")), BOB)
    assert letters.texts == said(talk("u")) * 2


async def test_another_encoding_or_rule_for_images_counts_anew() -> None:
    letters = Letters()
    schemes = [SCHEME, replace(SCHEME, encoding="cl100k_base"), replace(SCHEME, images="gpt-5")]
    assert len(set(map(scheme_key, schemes))) == 3
    async with life(encodings=Loaded(letters)) as one:
        for scheme in schemes:
            await measure(one, asked(talk("u")), scheme=scheme)
    assert letters.texts == said(talk("u")) * 3


async def test_changed_tools_are_counted_without_the_messages() -> None:
    letters = Letters()
    history = talk("s u a u")
    async with life(encodings=Loaded(letters)) as one:
        await measure(one, asked(history))
        letters.texts.clear()
        await measure(one, asked(history, tools=[{"name": "look", "description": "around"}]))
        assert "".join(letters.texts) == "look:around"
        await measure(one, asked(history))
        assert "".join(letters.texts) == "look:around"


async def test_a_value_of_another_version_is_counted_anew() -> None:
    store, letters = MemoryStore(), Letters()
    chat = asked(talk("u"))
    (raw,) = items(chat.messages) or []
    await store.put(ALICE, Space.COUNTS, {digest_of(raw, ALICE) + scheme_key(SCHEME): b"?"}, ttl=FOREVER)
    async with life(store, Loaded(letters)) as one:
        assert not (await measure(one, chat)).rough
    assert letters.texts == said(talk("u"))


async def test_a_store_that_fails_only_costs_the_counting() -> None:
    store, letters = Switched(), Letters()
    store.trouble = Outage("unavailable", "gone")
    async with life(store, Loaded(letters)) as one:
        assert not (await measure(one, asked(talk("s u")))).rough
    assert letters.texts == said(talk("s u"))


# What a request consists of.


async def test_the_sum_is_that_of_its_parts() -> None:
    form = {"type": "json_schema", "json_schema": {"a": 1}}
    tools, functions = [{"name": "look"}], [{"name": "go"}]
    history = talk("s u a u")
    async with life() as one:
        found = await one.measure(
            ALICE, asked(history, tools=tools, functions=functions, response_format=form), SCHEME
        )
        tokenizer = Loaded(Letters()).ready("")
    prompt = found.measured.prompt
    parts = [framing.measure_message(json.dumps(each).encode(), SCHEME, tokenizer) for each in history]
    extras = [framing.measure_tools(json.dumps(each).encode(), tokenizer) for each in (tools, functions)]
    extras.append(framing.measure_response_format(json.dumps(form).encode(), tokenizer))
    assert list(prompt.roles) == ["user", "assistant", "user"]
    assert [prompt.message(at) for at in range(3)] == parts[1:]
    assert prompt.outside.estimate == sum(extras, parts[0]) + Estimate(fixed=framing.REQUEST)


async def test_a_changed_tool_format_or_instruction_changes_what_stands_outside_and_not_the_chain() -> None:
    history = talk("s u a u")
    changed = [
        asked(history, tools=[{"name": "look"}]),
        asked(history, tools=[{"name": "go"}]),
        asked(history, response_format={"type": "json_object"}),
        asked([message("s", "else"), *history[1:]]),
        asked([*history, message("d", "else")]),
    ]
    async with life() as one:
        plain = (await one.measure(ALICE, asked(history), SCHEME)).measured.prompt
        others = [(await one.measure(ALICE, chat, SCHEME)).measured.prompt for chat in changed]
    assert all(other.chain == plain.chain for other in others)
    assert len({plain.outside.digest, *(other.outside.digest for other in others)}) == 6


@pytest.mark.parametrize(
    "messages", [None, {}, {"role": "user"}, "text", 7, [], [[]], [None, 7, "x", {"a": 1}]]
)
async def test_messages_in_no_shape_that_anybody_expects_are_measured_all_the_same(messages: Any) -> None:
    async with life() as one:
        for _ in range(2):
            assert not (await measure(one, asked(messages))).rough


async def test_a_request_without_messages_is_measured() -> None:
    async with life() as one:
        assert await measure(one, read(b"{}", compressed=False)) == Estimate(fixed=framing.REQUEST)


# Roughly.


@pytest.mark.parametrize("encodings", [Missing(), Loaded(Broken())])
async def test_a_rough_estimate_is_neither_remembered_nor_stored(encodings: Missing | Loaded) -> None:
    store = MemoryStore()
    history = talk("s u a u")
    async with life(store, encodings) as broken:
        found = await broken.measure(ALICE, asked(history), SCHEME)
        assert found.measured.prompt.estimate.rough == 4
        assert not found.fresh
        assert broken.recollection.held == 0
        measuring.later(broken.writer, ALICE, found.fresh, KEPT)
    letters = Letters()
    async with life(store, Loaded(letters)) as mended:
        assert not (await measure(mended, asked(history))).rough
    assert letters.texts == said(history)


async def test_what_could_not_be_counted_once_is_counted_when_it_can_be() -> None:
    class Moody(Letters):
        broken = True

        def encode_ordinary(self, text: str) -> list[int]:
            if self.broken and "2" in text:
                raise ValueError
            return super().encode_ordinary(text)

    moody = Moody()
    async with life(encodings=Loaded(moody)) as one:
        assert (await measure(one, asked(talk("s u a u")))).rough == 1
        moody.broken = False
        moody.texts.clear()
        assert not (await measure(one, asked(talk("s u a u")))).rough
        assert moody.texts == ["a says number 2"]


async def test_past_so_many_bytes_the_rest_is_taken_roughly_and_counted_the_next_time() -> None:
    letters = Letters()
    history = [message("u", f"{n}" * 400) for n in range(5)]
    async with life(encodings=Loaded(letters), limits=Limits(bytes=1_000)) as one:
        for left in (3, 1, 0):
            assert (await measure(one, asked(history))).rough == left
    assert letters.texts == said(history)


async def test_images_take_nothing_of_what_is_counted_of_a_request() -> None:
    letters = Letters()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500}}
    unknown = {"type": "hologram-5", "data": "QUJD" * 500}
    history = [message("u", [{"type": "text", "text": f"{n}" * 90}, image, unknown]) for n in range(7)]
    async with life(encodings=Loaded(letters), limits=Limits(bytes=1_200)) as one:
        assert (await measure(one, asked(history))).rough == 0
        assert (await measure(one, asked([message("u", "x" * 1_201)]))).rough == 1


async def test_a_single_message_is_not_counted_any_longer_than_a_request() -> None:
    letters = Letters()
    parts = [{"type": "text", "text": f"{n}" * 400} for n in range(5)]
    async with life(encodings=Loaded(letters), limits=Limits(bytes=1_000)) as one:
        assert (await measure(one, asked([message("u", parts)]))).rough == 1
    assert letters.texts == ["0" * 400, "1" * 400]


async def test_past_its_time_the_rest_is_taken_roughly() -> None:
    clock = Clock()

    class Slow(Letters):
        def encode_ordinary(self, text: str) -> list[int]:
            clock.now += 0.75
            return super().encode_ordinary(text)

    slow, tasks = Slow(), Tasks()
    with ThreadPoolExecutor(1) as pool:
        writer = LateWriter(MemoryStore(), tasks)
        measurer = Measurer(Loaded(slow), Recollection(10_000), writer, pool, clock=clock)
        found = await measurer.measure(await measurer.split(ALICE, asked(talk("u a u a u")), SCHEME))
    assert found.measured.prompt.estimate.rough == 2
    assert len(slow.texts) == len(found.fresh) == 3


async def test_more_messages_than_anybody_sends_are_taken_by_their_size() -> None:
    letters = Letters()
    async with life(encodings=Loaded(letters), limits=Limits(messages=10)) as one:
        ten, eleven = asked(talk("u " * 10)), asked(talk("u " * 11))
        assert not (await measure(one, ten)).rough
        letters.texts.clear()
        estimate = await measure(one, asked(talk("a " * 11)))
        assert estimate.rough == 1
        assert estimate.tokens >= len(eleven.messages) / 3
        assert not letters.texts


# Where and when.


async def test_large_texts_are_counted_in_the_pool_and_small_ones_at_once() -> None:
    class Placed(Letters):
        def __init__(self) -> None:
            super().__init__()
            self.threads: set[threading.Thread] = set()

        def encode_ordinary(self, text: str) -> list[int]:
            self.threads.add(threading.current_thread())
            return super().encode_ordinary(text)

    for content, here in (("short", True), ("x" * (INLINE_BYTES + 1), False)):
        placed = Placed()
        async with life(encodings=Loaded(placed)) as one:
            await measure(one, asked([message("u", content)]))
        assert (placed.threads == {threading.current_thread()}) is here


async def test_requests_that_come_before_the_vocabulary_wait_for_it_together() -> None:
    loading = Loading(Letters())
    async with life(encodings=loading, limits=Limits(patience=60)) as one:
        waiting = [asyncio.create_task(measure(one, asked([message("u", f"{n}")]))) for n in range(5)]
        waiting.append(asyncio.create_task(measure(one, asked([message("u", LARGE)]))))
        await asyncio.to_thread(loading.begun.wait)
        assert not any(task.done() for task in waiting)
        loading.go_on.set()
        assert not any(estimate.rough for estimate in await asyncio.gather(*waiting))
    assert loading.loads == 1


async def test_a_vocabulary_that_takes_too_long_is_not_waited_for_and_used_once_it_is_there() -> None:
    loading = Loading(Letters())
    async with life(encodings=loading, limits=Limits(patience=0)) as one:
        for content in ("short", LARGE):  # the other thread of the pool is still free
            assert (await measure(one, asked([message("u", content)]))).rough == 1
        loading.go_on.set()
        await asyncio.to_thread(loading.there.wait)
        for content in ("short", LARGE):
            assert not (await measure(one, asked([message("u", content)]))).rough
    assert loading.loads == 1


async def test_a_vocabulary_that_is_missing_is_not_waited_for() -> None:
    async with life(encodings=Missing(), limits=Limits(patience=60)) as one:
        assert (await measure(one, asked(talk("u")))).rough == 1
        assert (await measure(one, asked(talk("u a")))).rough == 2


async def test_one_who_stops_waiting_does_not_stop_the_loading() -> None:
    loading = Loading(Letters())
    async with life(encodings=loading, limits=Limits(patience=60)) as one:
        left = asyncio.create_task(measure(one, asked(talk("u"))))
        await asyncio.to_thread(loading.begun.wait)
        left.cancel()
        await asyncio.wait([left])
        stayed = asyncio.create_task(measure(one, asked(talk("u"))))
        loading.go_on.set()
        assert not (await stayed).rough


# What is stored.


async def test_the_store_gets_digests_and_numbers_and_no_text() -> None:
    class Watched(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.put_down: list[tuple[bytes, Space, bytes, bytes]] = []

        async def put(self, tenant: bytes, space: Space, values: Any, *, ttl: float) -> None:
            self.put_down += [(tenant, space, key, value) for key, value in values.items()]

    store = Watched()
    async with life(store) as one:
        await measure(one, asked([message("u", "confidential")], tools=[{"name": "secretive"}]))
    assert {(tenant, space) for tenant, space, _, _ in store.put_down} == {(ALICE, Space.COUNTS)}
    assert len(store.put_down) == 2
    for _, _, key, value in store.put_down:
        assert len(key) == HOME_SIZE + 20
        assert b"confidential" not in key + value
        assert b"secretive" not in key + value
        assert msgspec.msgpack.decode(value, type=Estimate).tokens
