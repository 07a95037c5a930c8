"""Whoever listens hears what happens, as far as it keeps up and as far as it concerns it."""

from __future__ import annotations

import asyncio

from proxy.events import Event, Events, Listener

ALICE, BOB = b"a" * 16, b"b" * 16
MOST = 1024


def event(number: int, tenant: bytes = ALICE) -> Event:
    return Event("fold_made", tenant, "c", {"number": number})


async def heard(listener: Listener, count: int) -> list[int]:
    numbers: list[int] = []
    async for each in listener:
        numbers.append(each.data["number"])
        if len(numbers) == count:
            break
    return numbers


async def test_each_listener_hears_all_in_order() -> None:
    events = Events()
    with events.listening() as one, events.listening() as other:
        for number in range(3):
            events.tell(event(number))
        assert await heard(one, 3) == await heard(other, 3) == [0, 1, 2]


async def test_nothing_is_heard_of_other_callers() -> None:
    events = Events()
    with events.listening(ALICE) as mine, events.listening(BOB) as other, events.listening() as everybody:
        for number in range(6):
            events.tell(event(number, ALICE if number % 2 else BOB))
        assert await heard(mine, 3) == [1, 3, 5]
        assert await heard(other, 3) == [0, 2, 4]
        assert await heard(everybody, 6) == [0, 1, 2, 3, 4, 5]


async def test_what_others_say_pushes_nothing_out_of_a_callers_ear() -> None:
    events = Events()
    with events.listening(ALICE) as mine:
        events.tell(event(0))
        for number in range(2 * MOST):
            events.tell(event(number, BOB))
        events.tell(event(1))
        assert await heard(mine, 2) == [0, 1]


async def test_who_does_not_keep_up_loses_the_oldest_and_holds_up_nobody() -> None:
    events = Events()
    with events.listening() as slow, events.listening() as quick:
        for number in range(MOST + 10):
            events.tell(event(number))  # at once: nobody is waited for
            assert await heard(quick, 1) == [number]
        assert await heard(slow, MOST) == [*range(10, MOST + 10)]


async def test_who_waits_hears_what_is_said_then() -> None:
    events = Events()
    with events.listening() as listener:
        waiting = asyncio.create_task(heard(listener, 1))
        await asyncio.sleep(0)
        assert not waiting.done()
        events.tell(event(7))
        assert await waiting == [7]


async def test_who_has_left_hears_nothing_more() -> None:
    events = Events()
    with events.listening() as gone:
        events.tell(event(0))
    events.tell(event(1))
    with events.listening() as later:
        events.tell(event(2))
        assert await heard(later, 1) == [2]
    assert await heard(gone, 1) == [0]
    waiting = asyncio.create_task(heard(gone, 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_a_listener_may_leave_while_another_is_told() -> None:
    events = Events()
    with events.listening() as one:
        with events.listening():
            events.tell(event(0))
        events.tell(event(1))
        assert await heard(one, 2) == [0, 1]
