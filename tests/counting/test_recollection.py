from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.counting.estimate import Estimate
from proxy.counting.framing import Scheme
from proxy.counting.prompt import Message, Outside, digest_of
from proxy.counting.recollection import Beginning, Extras, Measured, Recollection, measured, parted
from proxy.messages import ChatRequest, items, read, role_of
from proxy.ports import HOME_SIZE
from tests.counting.peers import ALICE, BOB, SPEAKERS, life, talk

NOTHING_BESIDE = Extras((), Outside(b"", Estimate()))


def measured_from(beginning: Beginning, array: bytes, tenant: bytes = ALICE) -> Measured:
    added = cut_out(beginning.rest(array), tenant)
    new = [Message(each.digest, each.role, Estimate(tokens=len(each.raw))) for each in added]
    return measured(parted(tenant, array, beginning, added, home_of), new, NOTHING_BESIDE)


@dataclass(frozen=True)
class CutOut:
    raw: bytes
    digest: bytes
    role: str


def cut_out(array: bytes, tenant: bytes = ALICE) -> list[CutOut]:
    return [CutOut(raw, digest_of(raw, tenant), role_of(raw)) for raw in items(array) or []]


def home_of(raw: bytes) -> bytes:
    return raw[:HOME_SIZE]


def remember(recollection: Recollection, array: bytes, tenant: bytes = ALICE) -> Beginning:
    beginning = recollection.find(tenant, array)
    recollection.keep(tenant, measured_from(beginning, array, tenant), beginning)
    return beginning


def written(messages: list[Any]) -> bytes:
    return json.dumps(messages).encode()


# Whatever a client may do to its history from one request to the next.

texts = st.sampled_from(
    [
        "",
        "hi",
        "hi there",
        '"}',
        '\\"user\\"',
        ',{"role":"user"}',
        "é\n\u2028😀",
        "]",
        "x" * 300,
        "\\",
    ]
)
messages = st.fixed_dictionaries({"role": st.sampled_from(sorted(SPEAKERS.values())), "content": texts}) | (
    st.fixed_dictionaries({"content": texts, "role": st.sampled_from(["user", "assistant", "system"])})
)
oddities = st.sampled_from(
    [7, "}", "\ud800", None, [], ["}"], {}, {"role": 7}, {"content": [{"type": "text"}]}, '{"a":1}']
)
histories = st.lists(messages, min_size=1, max_size=6)
spellings = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t ", " :\r\n")])


@dataclass(frozen=True)
class Turn:
    tenant: bytes
    chat: ChatRequest


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    """Requests of a few conversations in turn: each goes on from any earlier one, or begins anew."""
    opening = draw(histories)
    past: list[list[Any]] = [opening]
    spelling, ascii_only = draw(spellings), draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(3, 8))):
        history = _changed(draw, [*draw(st.sampled_from(past))])
        past.append(history)
        if draw(st.integers(0, 9)) == 0:
            spelling = draw(spellings)
        text = json.dumps(history, separators=spelling, ensure_ascii=ascii_only)
        space = draw(st.sampled_from(["", "", "\n "]))
        tools = draw(
            st.sampled_from(["", "", ',"tools":[{"name":"f"}]', ',"response_format":{"json_schema":{}}'])
        )
        body = f'{{"messages":{text[:1]}{space}{text[1:-1]}{space}{text[-1:]}{tools}}}'
        raw = body.encode(errors="surrogatepass")
        found.append(Turn(draw(st.sampled_from([ALICE, ALICE, BOB])), read(raw, compressed=False)))
    return found


def _changed(draw: st.DrawFn, history: list[Any]) -> list[Any]:
    at = draw(st.integers(0, len(history)))
    match draw(
        st.sampled_from(["go on", "go on", "go on", "cut", "edit", "insert", "branch", "same", "odd"])
    ):
        case "go on":
            return history + draw(st.lists(messages, min_size=1, max_size=3))
        case "cut":
            return history[:at]
        case "edit":
            return [*history[:at], draw(messages), *history[at + 1 :]]
        case "insert":
            return [*history[:at], draw(messages), *history[at:]]
        case "branch":
            return history[:at] + draw(st.lists(messages, max_size=2))
        case "odd":
            return [*history[:at], draw(oddities), *history[at:]]
    return history


@settings(deadline=None, max_examples=200)
@given(turns(), st.sampled_from([6_000, 10_000_000, 10_000_000]))
def test_whatever_is_remembered_a_request_measures_as_if_nothing_were(turns: list[Turn], most: int) -> None:
    async def compare() -> None:
        async with life(most_bytes=most) as remembering:
            for turn in turns:
                found = await remembering.measure(turn.tenant, turn.chat, Scheme())
                async with life(most_bytes=0) as forgetful:
                    anew = await forgetful.measure(turn.tenant, turn.chat, Scheme())
                    assert found.measured.prompt == anew.measured.prompt
                    assert found.measured.messages == anew.measured.messages
                    assert list(found.measured.ends) == list(anew.measured.ends)
                    count = (await remembering.count(turn.tenant, turn.chat)).count
                    assert count == (await forgetful.count(turn.tenant, turn.chat)).count
                assert remembering.recollection.held <= most

    asyncio.run(compare())


@settings(deadline=None)
@given(turns())
def test_a_message_ends_where_its_bytes_end(turns: list[Turn]) -> None:
    recollection = Recollection(10_000_000)
    for turn in turns:
        array = turn.chat.messages
        if not array:
            continue
        found = measured_from(recollection.find(turn.tenant, array), array, turn.tenant)
        raws = items(array) or []
        assert len(found.ends) in (0, len(raws))
        for raw, end in zip(raws, found.ends, strict=False):
            assert array[:end].endswith(raw)
        recollection.keep(turn.tenant, found, recollection.find(turn.tenant, array))


# What is remembered.


def test_a_conversation_that_goes_on_is_known_up_to_where_it_was() -> None:
    recollection = Recollection(1_000_000)
    history = talk("s u a u a u")
    for length in (2, 4, 6):
        beginning = remember(recollection, written(history[:length]))
        assert beginning.length == length - 2 if length > 2 else beginning.length == 0
    assert recollection.find(ALICE, written(history)).length == 6


def test_only_what_it_has_grown_into_is_kept_of_a_conversation() -> None:
    recollection = Recollection(1_000_000)
    history = talk("s u a u a u a u a u")
    for length in range(2, 11):
        remember(recollection, written(history[:length]))
    alone = Recollection(1_000_000)
    remember(alone, written(history))
    assert recollection.held == alone.held


def test_an_edited_history_is_known_up_to_the_edit() -> None:
    recollection = Recollection(1_000_000)
    history = talk("s u a u a u")
    remember(recollection, written(history))
    for at in range(2, 6):
        edited = [*history[:at], {"role": "user", "content": "else"}, *history[at + 1 :]]
        assert recollection.find(ALICE, written(edited)).length == at


def test_of_several_the_one_with_most_in_common_is_found() -> None:
    recollection = Recollection(1_000_000)
    opening, filler = talk("s u"), [{"role": "assistant", "content": "x" * 500}]
    branches = [opening + filler + [{"role": "user", "content": f"way {n}"}] + talk("a u") for n in range(5)]
    for branch in branches:
        remember(recollection, written(branch + filler * 4))
    for branch in branches:
        assert recollection.find(ALICE, written(branch + talk("a u"))).length == 6


def test_two_long_branches_do_not_push_each_other_out() -> None:
    recollection = Recollection(1_000_000)
    opening = talk("s u")
    one, other = (opening + [{"role": "assistant", "content": name * 500}] * 3 for name in "xy")
    for _ in range(3):
        remember(recollection, written(one))
        remember(recollection, written(other))
        one, other = one + talk("u a"), other + talk("u a")
        assert recollection.find(ALICE, written(one)).length == len(one) - 2
        assert recollection.find(ALICE, written(other)).length == len(other) - 2


@pytest.mark.parametrize("order", [("role", "content"), ("content", "role")])
def test_many_conversations_of_one_caller_are_told_apart_however_messages_are_spelled(
    order: tuple[str, str],
) -> None:
    recollection = Recollection(10_000_000)
    histories = [
        [{key: message[key] for key in order} for message in [{"role": "user", "content": f"task {n}"}]]
        for n in range(500)
    ]
    for history in histories:
        remember(recollection, written(history))
    assert all(recollection.find(ALICE, written(history)).length == 1 for history in histories)


def test_many_conversations_with_the_same_first_message_are_bounded_in_number() -> None:
    recollection = Recollection(10_000_000)
    histories = [[*talk("u"), {"role": "assistant", "content": f"{n} " * 50}] for n in range(500)]
    for history in histories:
        remember(recollection, written(history))
    known = [recollection.find(ALICE, written(history)).length for history in histories]
    assert known[-50:] == [2] * 50
    assert known.count(2) < 100


def test_nobody_finds_what_another_has_sent() -> None:
    recollection = Recollection(1_000_000)
    remember(recollection, written(talk("s u a u")), ALICE)
    assert recollection.find(BOB, written(talk("s u a u"))) == Beginning()


@pytest.mark.parametrize("array", [b"[]", b"", b"{}", b'{"a":1}', b"null", b"[1]", b'["}"]', b"[ ]"])
def test_what_is_no_list_of_messages_is_measured_and_not_kept(array: bytes) -> None:
    recollection = Recollection(1_000_000)
    assert remember(recollection, array) == Beginning()
    assert recollection.find(ALICE, array) == Beginning()
    assert recollection.held == 0


# Memory.


def test_what_does_not_fit_is_not_kept_and_pushes_nothing_out() -> None:
    recollection = Recollection(10_000)
    remember(recollection, written(talk("u a u")))
    before = recollection.held
    remember(recollection, written([{"role": "user", "content": "x" * 20_000}]))
    assert recollection.held == before
    assert recollection.find(ALICE, written(talk("u a u"))).length == 3


def test_the_oldest_goes_first_even_among_those_that_begin_alike() -> None:
    recollection = Recollection(20_000)
    histories = [[*talk("u"), {"role": "assistant", "content": f"{n}" * 2_000}] for n in range(9)]
    for history in histories:
        remember(recollection, written(history))
        assert recollection.find(ALICE, written(history)).length == 2
        assert recollection.held <= 20_000
    assert recollection.find(ALICE, written(histories[0])).length < 2


@pytest.mark.parametrize(("length", "tools"), [(1, 0), (40, 0), (2, 20_000)])
def test_what_is_held_is_what_it_takes_in_memory(length: int, tools: int) -> None:
    most = 2_000_000
    recollection = Recollection(most)
    gc.collect()
    tracemalloc.start()
    for number in range(4 * most // (2_000 * length + tools)):
        array = written([{"role": "user", "content": f"{number} {at}"} for at in range(length)])
        extras = Extras((bytes(tools), b"", b""), Outside(bytes([number % 256]) * 16, Estimate(fixed=3)))
        added = cut_out(array)
        new = [
            Message(each.digest, "user", Estimate(300 + number, 300 + len(each.raw), 999, 999))
            for each in added
        ]
        parts = parted(ALICE, array, Beginning(), added, home_of)
        recollection.keep(ALICE, measured(parts, new, extras), Beginning())
    held = recollection.held
    del array, extras, added, new, parts
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert most / 2 < held <= most
    assert taken < 1.1 * most
