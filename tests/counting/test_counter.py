from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.budget import Policy, Window, budget
from proxy.counting.anchors import Basis, Lesson
from proxy.counting.counter import Counted, Counter, Manner
from proxy.counting.framing import Scheme
from proxy.counting.tokenizer import Encodings
from proxy.messages import ChatRequest, read
from proxy.store import open_store
from proxy.store.guarded import GuardedStore
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.store.sqlite import SqliteStore
from proxy.tasks import Tasks
from proxy.usage import Usage
from tests.counting.peers import (
    ALICE,
    BOB,
    Broken,
    Hanging,
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
from tests.store.doubles import Switched, never_opens


async def answered(one: Life, chat: ChatRequest, usage: Usage | None, tenant: bytes = ALICE) -> Counted:
    counted = await one.count(tenant, chat)
    one.counter.record(tenant, counted, usage)
    return counted


# What cannot be read.


@pytest.mark.parametrize(
    ("raw", "compressed"),
    [
        (zlib.compress(orjson.dumps({"messages": talk("u a u")})), True),
        (b'{"messages":[]}', True),
        (b"not json " * 100, False),
        (b"[1,2,3]", False),
        (b'{"messages":[', False),
        (b"", False),
    ],
)
async def test_a_body_that_cannot_be_read_is_counted_by_its_bytes(raw: bytes, compressed: bool) -> None:
    async with life() as one:
        counted = await answered(one, read(raw, compressed=compressed), Usage(1_000, 10))
        assert counted.count.basis is Basis.ROUGH
        assert counted.count.tokens == -(-len(raw) // 3)
        assert counted.count.at_most >= 1.4 * counted.count.tokens
        assert counted.prompt is None


async def test_media_in_a_body_that_cannot_be_read_is_not_taken_for_text() -> None:
    raw = b'{"image":"' + b"QUJD" * 2_000_000
    async with life() as one:
        assert (await one.count(ALICE, read(raw, compressed=False))).count.tokens < 1_000


keys = st.sampled_from(
    [
        "messages",
        "model",
        "tools",
        "functions",
        "response_format",
        "n",
        "role",
        "content",
        "tool_calls",
        "name",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=30,
)


@settings(deadline=None)
@given(
    st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()), st.integers(0, 2**53 - 1)
)
def test_whatever_is_sent_is_counted(raw: bytes, billed: int) -> None:
    async def count() -> None:
        async with life() as one:
            chat = read(raw, compressed=False)
            with capture_logs() as logged:
                counted = await answered(one, chat, Usage(billed, billed))
                again = await answered(one, chat, Usage(billed, 0))
            assert not [entry for entry in logged if entry["event"] == "counting failed, going on without"]
            assert min(counted.count.tokens, counted.count.uncertainty, again.count.tokens) >= 0

    asyncio.run(count())


# Whatever fails.


@pytest.mark.parametrize("encodings", [Loaded(Broken()), Missing()])
async def test_without_a_tokenizer_a_count_is_rough_and_the_trigger_lower(encodings: Encodings) -> None:
    chat = asked([message("u", "some words of a text, " * 2_000)])
    async with life(encodings=encodings) as broken, life(encodings=Encodings()) as whole:
        rough = (await broken.count(ALICE, chat)).count
        exact = (await whole.count(ALICE, chat)).count
    assert (rough.basis, exact.basis) == (Basis.ROUGH, Basis.COLD)
    assert rough.tokens >= exact.tokens
    assert rough.uncertainty > exact.uncertainty
    allowed = budget(Window(int(1.6 * rough.tokens), 100), None, Policy())
    assert allowed.past_hard(rough)
    assert not allowed.past_hard(exact)


async def test_a_failure_that_nobody_has_thought_of_is_said_once_and_without_the_text() -> None:
    def unruly(_model: str) -> Manner:
        raise RuntimeError("confidential")

    async with life() as one:
        counter = Counter(one.measurer, one.knowledge, one.writer, unruly)
        with capture_logs() as logged:
            for _ in range(3):
                chat = asked([message("u", "confidential " * 100)])
                counted = await counter.count(chat, await counter.split(ALICE, chat))
                assert counter.record(ALICE, counted, Usage(100, 10)) == Lesson()
    assert counted.count.basis is Basis.ROUGH
    assert counted.count.tokens > 400
    assert [entry["event"] for entry in logged] == ["counting failed, going on without"]
    assert "confidential" not in str(logged)


async def test_a_bill_that_cannot_be_learned_from_costs_nobody_his_answer() -> None:
    def unruly(_model: str) -> Manner:
        raise RuntimeError

    async with life() as one:
        counted = await one.count(ALICE, asked(talk("u")))
        counter = Counter(one.measurer, one.knowledge, one.writer, unruly)
        assert counter.record(ALICE, counted, Usage(100, 10)) == Lesson()


async def test_a_store_that_fails_costs_no_count() -> None:
    store = Switched()
    store.trouble = Outage("unavailable", "gone")
    async with life(store) as one:
        for length in (1, 3, 5):
            chat = asked(talk("u a u a u")[:length])
            counted = await answered(one, chat, Usage(100 * length, 10))
            assert counted.count.basis is (Basis.COLD if length == 1 else Basis.ANCHORED)


async def test_a_store_that_hangs_holds_no_count_for_long() -> None:
    async def opened() -> Hanging:
        return Hanging()

    tasks = Tasks()
    guard = GuardedStore(opened, tasks, url="hanging://", time_limit=0.01)
    async with life(guard, longest=60) as one:
        for _ in range(2):
            counted = await one.count(ALICE, asked(talk("u a u")))
            assert counted.count.basis is Basis.COLD
    await guard.close()
    await tasks.close(60)


async def test_a_store_that_cannot_be_opened_costs_no_count() -> None:
    tasks = Tasks()
    guard = GuardedStore(never_opens, tasks, url="none://")
    async with life(guard) as one:
        assert (await answered(one, asked(talk("u")), Usage(10, 1))).count.basis is Basis.COLD
        assert (await answered(one, asked(talk("u a u")), None)).count.basis is Basis.ANCHORED
    await guard.close()
    await tasks.close(60)


async def test_a_pool_that_is_taken_up_holds_no_count_for_long() -> None:
    loading = Loading(Letters())
    async with life(encodings=loading, longest=0.01) as one:
        counted = await one.count(ALICE, asked([message("u", "x" * 100_000)]))
        loading.go_on.set()
    assert counted.count.basis is Basis.ROUGH
    assert counted.prompt is None


async def test_a_client_that_leaves_stops_its_count() -> None:
    async with life(Hanging(), longest=60) as one:
        counting = asyncio.create_task(one.count(ALICE, asked(talk("u"))))
        await asyncio.sleep(0)
        counting.cancel()
        await asyncio.wait([counting])
        assert counting.cancelled()


# Learning from bills.


async def test_what_was_billed_is_counted_exactly_the_next_time() -> None:
    history = talk("s u a u a u")
    async with life() as one:
        first = await answered(one, asked(history[:2]), Usage(1_234, 0))
        again = await one.count(ALICE, asked(history[:2]))
        assert (first.count.basis, again.count.basis) == (Basis.COLD, Basis.ANCHORED)
        assert (again.count.tokens, again.count.uncertainty) == (1_234, 0)


async def test_a_conversation_that_goes_on_is_counted_from_its_last_bill() -> None:
    history = talk("s u a u")
    async with life() as one:
        await answered(one, asked(history[:2]), Usage(1_234, len("a says number 2")))
        counted = await one.count(ALICE, asked(history))
        assert counted.count.basis is Basis.ANCHORED
        assert counted.count.exact == 1_234 + len("a says number 2")
        added = 4 + len("u says number 3")
        assert abs(counted.count.tokens - counted.count.exact - added) <= 4


async def test_bills_make_the_next_estimates_better() -> None:
    """An upstream that needs half as many tokens again as our encoding."""
    async with life() as one:
        errors = []
        history = talk("u")
        for turn in range(30):
            billed = round(1.5 * sum(4 + len(each["content"]) for each in history))
            counted = await answered(one, asked(history), Usage(billed, 0))
            errors.append(abs(counted.count.tokens - billed))
            history += [message("a", f"{turn} words " * 30), message("u", f"{turn} and more " * 20)]
    assert sum(errors[-5:]) < sum(errors[1:6]) / 10


async def test_a_bill_that_was_late_does_not_undo_what_others_have_taught() -> None:
    async with life() as one:
        await answered(one, asked(talk("u")), Usage(100, 0))
        long = [*talk("u"), message("a", "word " * 200), *talk("u")]
        late = await one.count(ALICE, asked(long))
        before = one.knowledge.calibration("m", 1.0)
        lesson = (await one.count(ALICE, asked(long)), Usage(1_700, 0))
        one.counter.record(ALICE, *lesson)
        taught = one.knowledge.calibration("m", 1.0)
        one.counter.record(ALICE, late, Usage(1_700, 0))
        assert taught.seen == before.seen + 1
        assert one.knowledge.calibration("m", 1.0).seen == taught.seen + 1


async def test_without_a_bill_only_the_counts_are_kept() -> None:
    store, letters = MemoryStore(), Letters()
    async with life(store, Loaded(letters)) as one:
        assert one.counter.record(ALICE, await one.count(ALICE, asked(talk("u"))), None) == Lesson()
        assert (await one.count(ALICE, asked(talk("u")))).count.basis is Basis.COLD
    async with life(store, Loaded(letters)) as other:
        await other.count(ALICE, asked(talk("u")))
    assert len(letters.texts) == 1


async def test_several_answers_to_one_request_are_no_help_for_the_next() -> None:
    history = talk("u a u")
    async with life() as one:
        await answered(one, asked(history[:1], n=3), Usage(100, 45))
        assert (await one.count(ALICE, asked(history))).count.exact == 100


async def test_a_prompt_that_was_cut_in_silence_is_told_and_not_believed() -> None:
    long = asked([message("u", "words " * 1_000)])
    async with life() as one:
        counted = await one.count(ALICE, long)
        assert one.counter.record(ALICE, counted, Usage(2_048, 1)).truncated
        assert (await one.count(ALICE, long)).count == counted.count


MEDIA: list[dict[str, Any]] = [
    {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "A" * 4_000},
    },
    {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    {"type": "input_audio", "input_audio": {"data": "A" * 4_000, "format": "wav"}},
    {"type": "scan-of-a-page", "page": 1},
]


@pytest.mark.parametrize("part", MEDIA, ids=lambda part: part["type"])
async def test_media_in_one_conversation_costs_nothing_in_another_that_begins_alike(
    part: dict[str, Any],
) -> None:
    async with life() as one:
        for turn in range(4):
            media = [*talk("s"), message("u", [part, {"type": "text", "text": f"sum it up, {turn}"}])]
            await answered(one, asked(media), Usage(30_000 + turn, 0))
            words = [*talk("s"), message("u", f"what is {turn} and {turn}?")]
            counted = await answered(one, asked(words), Usage(60, 0))
            assert counted.count.tokens < 100


async def test_a_part_of_an_unknown_type_that_costs_nothing_is_no_truncation() -> None:
    unknown = {"type": "scan-of-a-page", "words": "many words " * 500}
    async with life() as one:
        counted = await one.count(ALICE, asked([message("u", [unknown])]))
        assert not one.counter.record(ALICE, counted, Usage(40, 0)).truncated


async def test_the_models_own_factor_is_used_until_it_is_billed() -> None:
    chat = asked([message("u", "words " * 1_000)])
    async with life() as plain, life(manner=Manner(Scheme(), 1.25)) as quarter:
        one = (await plain.count(ALICE, chat)).count
        more = (await quarter.count(ALICE, chat)).count
    assert more.tokens == pytest.approx(1.25 * one.tokens, rel=0.01)


@pytest.mark.parametrize(("tools", "added"), [(b"", 0), (b"[]", 0), (b"null", 0), (b'[{"name":"f"}]', 346)])
async def test_what_a_provider_adds_for_tools_is_counted_where_there_are_any(
    tools: bytes, added: int
) -> None:
    chat = replace(asked([message("u", "hello")]), tools=tools)
    async with life() as plain, life(manner=Manner(tool_prompt=346)) as prompted:
        one = (await plain.count(ALICE, chat)).count
        more = (await prompted.count(ALICE, chat)).count
    assert more.tokens - one.tokens == added


# Callers, and lives of the process.


async def test_two_callers_see_nothing_of_each_other() -> None:
    store, letters = MemoryStore(), Letters()
    history = talk("s u a u")
    async with life(store, Loaded(letters)) as one:
        await answered(one, asked(history), Usage(5_000, 10), ALICE)
        counted = len(letters.texts)
        bobs = await one.count(BOB, asked(history))
        assert bobs.count.basis is Basis.COLD
        assert len(letters.texts) == 2 * counted
    async with life(store, Loaded(letters)) as later:
        assert (await later.count(BOB, asked(history))).count.basis is Basis.COLD
        assert (await later.count(ALICE, asked(history))).count.basis is Basis.ANCHORED


def rows(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT tenant, space, key, value FROM facts").fetchall()
    finally:
        connection.close()


def written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@asynccontextmanager
async def file_life(path: Path, letters: Letters) -> AsyncIterator[Life]:
    store = await SqliteStore.open(path)
    try:
        async with life(store, Loaded(letters)) as one:
            yield one
    finally:
        await store.close()


async def test_a_restart_keeps_counts_anchors_openings_and_calibrations(tmp_path: Path) -> None:
    path, letters = tmp_path / "state.db", Letters()
    history = [*talk("s u"), message("a", "word " * 50), *talk("u"), message("a", "more " * 50), *talk("u")]
    async with file_life(path, letters) as before:
        for length, tokens in ((2, 100), (4, 500)):
            await answered(before, asked(history[:length]), Usage(tokens, 0))
        taught = before.knowledge.calibration("m", 1.0)
    assert taught.seen
    letters.texts.clear()
    async with file_life(path, letters) as after:
        counted = await after.count(ALICE, asked(history))
        assert counted.count.exact == 500
        assert letters.texts == ["more " * 50]
        assert after.knowledge.calibration("m", 1.0) == taught
        begun = await after.count(ALICE, asked([*talk("s"), message("u", "hello")]))
        assert begun.count.basis is Basis.OPENING


async def test_the_file_holds_digests_and_numbers_by_caller_and_not_a_word(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    history = [message("s", "confidential"), message("u", "secretive " * 50)]
    async with file_life(path, Letters()) as one:
        for tenant in (ALICE, BOB):
            await answered(one, asked(history, tools=[{"name": "hidden"}]), Usage(700, 10), tenant)
    found = rows(path)
    assert {tenant for tenant, *_ in found} <= {ALICE, BOB, b""}
    alices, bobs = ({key for tenant, _, key, _ in found if tenant == who} for who in (ALICE, BOB))
    assert len(alices) == len(bobs) == 5
    assert not alices & bobs
    assert not any(word in written(tmp_path) for word in (b"confidential", b"secretive", b"hidden"))


async def test_a_store_opened_as_users_open_it_keeps_counts_over_a_restart(tmp_path: Path) -> None:
    letters = Letters()
    for _ in range(2):
        tasks = Tasks()
        store = open_store(f"sqlite:///{tmp_path}/state.db", tasks, on_outage=lambda reason: None)
        async with life(store, Loaded(letters)) as one:
            counted = await answered(one, asked(talk("s u a u")), Usage(120, 0))
        await store.close()
        await tasks.close(60)
    assert len(letters.texts) == 4
    assert (counted.count.basis, counted.count.tokens) == (Basis.ANCHORED, 120)


# A text of our own.


async def test_a_text_is_counted_as_the_model_counts_it() -> None:
    async with life(manner=Manner(factor=1.5)) as one:
        cold = one.counter.of_text(await one.count(ALICE, asked(talk("u"))))
        assert cold("x" * 100) == 150
        assert cold("") == 0
    async with life() as one:
        history = talk("u")
        for turn in range(30):
            billed = round(1.5 * sum(4 + len(each["content"]) for each in history))
            counted = await answered(one, asked(history), Usage(billed, 0))
            history += [message("a", f"{turn} words " * 30), message("u", f"{turn} and more " * 20)]
        learned = one.counter.of_text(await one.count(ALICE, asked(history)))
        assert 1.4 < learned("some words of a text " * 50) / (21 * 50) < 1.6
        assert counted.prompt is not None


@pytest.mark.parametrize("encodings", [Loaded(Broken()), Missing()])
async def test_without_a_tokenizer_a_text_is_taken_roughly(encodings: Encodings) -> None:
    async with life(encodings=encodings) as one:
        tokens = one.counter.of_text(await one.count(ALICE, asked(talk("u"))))
        assert 100 < tokens("some words " * 100) < 1_100


async def test_a_text_is_counted_for_a_request_that_nobody_could_read() -> None:
    async with life() as one:
        tokens = one.counter.of_text(await one.count(ALICE, read(b"{", compressed=False)))
        assert tokens("x" * 100) == 100


async def test_texts_are_counted_in_other_threads() -> None:
    async with life() as one:
        tokens = one.counter.of_text(await one.count(ALICE, asked(talk("u"))))
        counted = await asyncio.gather(*(asyncio.to_thread(tokens, "x" * size) for size in range(20)))
    assert counted == [*range(20)]
