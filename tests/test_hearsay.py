"""What came of folds under a name counts where nothing else is known, until a line goes on with one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.conversation import BY_CONTENT, Conversation
from proxy.hearsay import Hearsay
from proxy.ports import Space, Store
from proxy.store.memory import MemoryStore
from tests.counting.peers import ALICE, BOB
from tests.desk import MONTH, Desk, called, desk


@asynccontextmanager
async def hearing(store: Store | None = None) -> AsyncIterator[tuple[Hearsay, Desk]]:
    async with desk(store) as one:
        yield Hearsay(one.writer, ttl=lambda: MONTH), one


async def recalled(hearsay: Hearsay) -> None:
    question = hearsay.recalling(ALICE, called("c"))
    assert question is not None
    await question


async def test_folds_that_nobody_has_a_use_for_add_up() -> None:
    async with hearing() as (hearsay, _):
        assert hearsay.unused(ALICE, called("c")) == 0
        for number in range(4):
            hearsay.answered(ALICE, called("c"), [b"x"], b"%d" % number)
            hearsay.answered(ALICE, called("c"), [b"x"], b"%d" % number)  # waited for by two
            assert hearsay.unused(ALICE, called("c")) == min(2, number + 1)
        assert (hearsay.unused(ALICE, called("d")), hearsay.unused(BOB, called("c"))) == (0, 0)


async def test_a_line_that_goes_on_clears_the_name() -> None:
    async with hearing() as (hearsay, _):
        for prefix in (b"a", b"b"):
            hearsay.answered(ALICE, called("c"), [], prefix)
        hearsay.answered(
            ALICE, called("c"), [b"a"], None
        )  # it may have been under way when the fold was begun
        assert hearsay.unused(ALICE, called("c")) == 2
        hearsay.answered(ALICE, called("c"), [b"a", b"z"], None)
        assert hearsay.unused(ALICE, called("c")) == 0


async def test_another_worker_hears_of_it() -> None:
    store = MemoryStore()
    async with hearing(store) as (one, of_one), hearing(store) as (other, of_other):
        for prefix in (b"a", b"b"):
            one.answered(ALICE, called("c"), [], prefix)
        await of_one.writer.drain(60)
        await recalled(other)
        assert other.unused(ALICE, called("c")) == 2
        for _ in range(2):
            other.answered(ALICE, called("c"), [b"b"], None)
        await of_other.writer.drain(60)
        await recalled(one)
        assert one.unused(ALICE, called("c")) == 0


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xc1", b"\x81\x01\x02", b"\x91\x91\xa1\xff"])
async def test_what_was_never_written_by_us_says_nothing(junk: bytes) -> None:
    class Junk(MemoryStore):
        async def get(self, tenant: bytes, space: Space, keys: object) -> dict[bytes, bytes]:
            assert isinstance(keys, list)
            return dict.fromkeys(keys, junk)

    async with hearing(Junk()) as (hearsay, _):
        await recalled(hearsay)
        assert hearsay.unused(ALICE, called("c")) == 0


async def test_a_name_that_was_made_of_the_first_message_says_nothing() -> None:
    async with hearing() as (hearsay, _):
        nameless = Conversation("content-one", BY_CONTENT)
        for prefix in (b"a", b"b"):
            hearsay.answered(ALICE, nameless, [], prefix)
        assert hearsay.unused(ALICE, nameless) == 0
        assert hearsay.recalling(ALICE, nameless) is None
