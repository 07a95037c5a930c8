from __future__ import annotations

from functools import partial

import pytest

from proxy.callers import REMEMBERED, Callers
from proxy.ports import NOBODY

ALICE, BOB = b"alice", b"bob"


def test_who_was_accepted_is_known_and_nobody_else() -> None:
    callers = Callers()
    callers.answered(ALICE, 200, well=True)
    assert [callers.know(tenant) for tenant in (ALICE, BOB, NOBODY)] == [True, False, True]


@pytest.mark.parametrize("status", [401, 403, 400, 429, 500, 0, 200])
def test_a_refusal_of_any_kind_makes_nobody_known(status: int) -> None:
    callers = Callers()
    callers.answered(ALICE, status, well=status != 200)
    assert not callers.know(ALICE)


def test_who_was_accepted_once_stays_known() -> None:
    callers = Callers()
    callers.accept(ALICE)
    callers.answered(ALICE, 403, well=True)
    assert callers.know(ALICE)


def test_what_waits_is_done_in_its_order_once_its_caller_is_accepted() -> None:
    callers, done = Callers(), list[int]()
    for number in range(3):
        callers.when_accepted(ALICE, partial(done.append, number), 1)
    callers.when_accepted(BOB, partial(done.append, 7), 1)
    callers.answered(ALICE, 429, well=True)  # who comes too often may come again
    assert done == []
    callers.accept(ALICE)
    callers.accept(ALICE)
    assert done == [0, 1, 2]


@pytest.mark.parametrize("status", [401, 403])
def test_what_waits_for_somebody_who_is_refused_is_forgotten(status: int) -> None:
    callers, done = Callers(), list[int]()
    callers.when_accepted(ALICE, partial(done.append, 1), 1)
    callers.answered(ALICE, status, well=True)
    callers.accept(ALICE)
    assert done == []


def test_what_waits_the_longest_goes_first_where_too_much_waits() -> None:
    callers, done = Callers(most_bytes=100), list[bytes]()
    for tenant, size in ((ALICE, 60), (BOB, 40), (ALICE, 20), (b"greedy", 500)):
        callers.when_accepted(tenant, partial(done.append, tenant), size)
    for tenant in (ALICE, BOB, b"greedy"):
        callers.accept(tenant)
    assert done == []
    callers.when_accepted(b"later", partial(done.append, b"later"), 100)
    callers.accept(b"later")
    assert done == [b"later"]


def test_strangers_push_no_known_caller_out_of_memory() -> None:
    callers = Callers(most_bytes=1000)
    callers.accept(ALICE)
    for number in range(REMEMBERED + 1):
        callers.when_accepted(b"%d" % number, lambda: None, 100)
        callers.answered(b"%d" % number, 401, well=True)
    assert callers.know(ALICE)
