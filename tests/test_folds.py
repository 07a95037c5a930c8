"""Folds are found by what a history says, by every worker, and only by the caller whose history it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from proxy.callers import Callers
from proxy.fold.history import History, Turn, history
from proxy.fold.record import Fold, Kind, Trigger, to_bytes
from proxy.folds import Folds
from proxy.ports import Space
from proxy.store.memory import MemoryStore
from proxy.store.sqlite import SqliteStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from tests.store.doubles import PATIENCE

ALICE, BOB = b"a" * 16, b"b" * 16
MONTH = 30 * 24 * 3600.0


def said(words: str, tenant: bytes = ALICE) -> History:
    turns = [Turn(word.encode(), "user", word.encode().ljust(16), 10) for word in words.split()]
    return history(turns, tenant)


def fold_of(of: History, covers: int, name: str = "f1") -> Fold:
    return Fold(
        id=name,
        home=of.home,
        prefix=of.chain[covers],
        covers=covers,
        kept=(),
        messages=(b'{"role":"system","content":"short"}',),
        text="short",
        kind=Kind.SUMMARY,
        trigger=Trigger.AUTO,
        created=1.0,
        original_tokens=100,
        summary_tokens=10,
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def folds(store: MemoryStore | SqliteStore) -> Folds:
    return Folds(store, LateWriter(store, Tasks()), ttl=lambda: MONTH)


async def test_a_fold_is_found_by_every_history_that_goes_on_from_it(store: MemoryStore) -> None:
    kept = await folds(store).keep(ALICE, fold_of(said("one two three"), 2))
    for words in ("one two", "one two three", "one two other things"):
        assert await folds(store).known(ALICE, said(words)) == [kept]
    for words in ("one", "one other three", "two one three"):
        assert await folds(store).known(ALICE, said(words)) == []


async def test_another_caller_finds_nothing(store: MemoryStore) -> None:
    await folds(store).keep(ALICE, fold_of(said("one two"), 2))
    assert await folds(store).known(BOB, said("one two", BOB)) == []
    assert await folds(store).known(BOB, said("one two")) == []


async def test_of_two_that_are_made_at_once_the_first_is_used_by_both(store: MemoryStore) -> None:
    of = said("one two")
    one, other = folds(store), folds(store)
    first = await one.keep(ALICE, fold_of(of, 2, "first"))
    assert await other.keep(ALICE, fold_of(of, 2, "second")) == first
    assert await other.known(ALICE, of) == [first]


async def test_a_fold_of_a_caller_who_was_not_accepted_yet_is_used_and_kept_afterwards(
    store: MemoryStore,
) -> None:
    of, callers, tasks = said("one two"), Callers(), Tasks()
    mine = Folds(store, LateWriter(store, tasks, callers), ttl=lambda: MONTH)
    first = await mine.keep(ALICE, fold_of(of, 2, "first"))
    assert await mine.keep(ALICE, fold_of(of, 2, "second")) == first
    assert await mine.known(ALICE, of) == [first]
    assert await folds(store).known(ALICE, of) == []
    callers.accept(ALICE)
    await tasks.close(PATIENCE)
    assert await folds(store).known(ALICE, of) == [first]


async def test_what_another_has_kept_before_a_caller_is_accepted_is_used(
    store: MemoryStore,
) -> None:
    of, callers, tasks = said("one two three"), Callers(), Tasks()
    mine = Folds(store, LateWriter(store, tasks, callers), ttl=lambda: MONTH)
    before = await folds(store).keep(ALICE, fold_of(of, 2, "before"))
    assert await mine.keep(ALICE, fold_of(of, 2, "mine")) == before
    assert (await mine.keep(ALICE, fold_of(of, 3, "mine"))).id == "mine"
    meanwhile = await folds(store).keep(ALICE, fold_of(of, 3, "meanwhile"))
    callers.accept(ALICE)
    await tasks.close(PATIENCE)
    assert await mine.known(ALICE, of) == [before, meanwhile]


async def test_a_fold_that_another_worker_makes_later_is_found_too(store: MemoryStore) -> None:
    of = said("one two three")
    mine, others = folds(store), folds(store)
    assert await mine.known(ALICE, of) == []
    kept = await others.keep(ALICE, fold_of(of, 2))
    assert await mine.known(ALICE, of) == [kept]


async def test_a_fold_that_has_seen_instructions_is_for_requests_with_the_same_ones(
    store: MemoryStore,
) -> None:
    of = said("one two three")
    seen = await folds(store).keep(ALICE, replace(fold_of(of, 2, "seen"), beside=b"i" * 16))
    assert await folds(store).known(ALICE, of, b"i" * 16) == [seen]
    assert await folds(store).at(ALICE, of.home, of.chain[2], b"i" * 16) == seen
    for others in (None, b"j" * 16):
        assert await folds(store).known(ALICE, of, others) == []
        assert await folds(store).at(ALICE, of.home, of.chain[2], others) is None


async def test_a_fold_that_has_seen_instructions_leaves_the_others_their_place(store: MemoryStore) -> None:
    of, shelf = said("one two three"), folds(store)
    seen = await shelf.keep(ALICE, replace(fold_of(of, 2, "seen"), beside=b"i" * 16))
    usual = await shelf.keep(ALICE, fold_of(of, 2, "usual"))
    assert await folds(store).known(ALICE, of) == [usual]
    assert await folds(store).known(ALICE, of, b"i" * 16) == [usual, seen]


async def test_all_folds_of_a_history_are_found(store: MemoryStore) -> None:
    of = said("one two three four")
    shelf = folds(store)
    kept = [await shelf.keep(ALICE, fold_of(of, covers, f"f{covers}")) for covers in (1, 3)]
    assert sorted(await folds(store).known(ALICE, of), key=lambda fold: fold.covers) == kept


@pytest.mark.parametrize("junk", [b"", b"junk", b"\xc1", msgspec.msgpack.encode({"id": 5})])
async def test_what_is_not_a_fold_is_a_miss(store: MemoryStore, junk: bytes) -> None:
    of = said("one two")
    await store.put(ALICE, Space.FOLDS, {of.home + of.chain[1]: junk}, ttl=MONTH)
    assert await folds(store).known(ALICE, of) == []
    assert await folds(store).at(ALICE, of.home, of.chain[1]) is None


async def test_a_record_under_a_foreign_name_is_never_used(store: MemoryStore) -> None:
    of = said("one two")
    for foreign in (fold_of(said("other words"), 2), replace(fold_of(of, 2), beside=b"i" * 16)):
        await store.put(ALICE, Space.FOLDS, {of.home + of.chain[2]: to_bytes(foreign)}, ttl=MONTH)
        shelf = folds(store)
        assert await shelf.known(ALICE, of) == []
        assert await shelf.at(ALICE, of.home, of.chain[2]) is None
    mine = fold_of(of, 2)
    assert await folds(store).keep(ALICE, mine) == mine


async def test_the_fold_of_just_one_prefix_is_found_by_its_name(store: MemoryStore) -> None:
    of = said("one two three")
    mine, others = folds(store), folds(store)
    assert await mine.at(ALICE, of.home, of.chain[2]) is None
    kept = await others.keep(ALICE, fold_of(of, 2))
    assert await mine.at(ALICE, of.home, of.chain[2]) == kept
    await store.delete(ALICE, Space.FOLDS, [of.home + of.chain[2]])
    assert await mine.at(ALICE, of.home, of.chain[2]) == kept  # it is remembered
    assert await mine.at(ALICE, of.home, of.chain[3]) is None
    assert await mine.at(BOB, of.home, of.chain[2]) is None


async def test_a_fold_outlives_the_process(tmp_path: Path) -> None:
    of = said("one two three")
    store = await SqliteStore.open(tmp_path / "state.db")
    kept = await folds(store).keep(ALICE, fold_of(of, 2))
    await store.close()
    reopened = await SqliteStore.open(tmp_path / "state.db")
    assert await folds(reopened).known(ALICE, of) == [kept]
    await reopened.close()


class Writes(MemoryStore):
    """Remembers what was written anew, and for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    async def put(self, tenant: bytes, space: Space, values: Mapping[bytes, bytes], *, ttl: float) -> None:
        self.times.append(ttl)
        await super().put(tenant, space, values, ttl=ttl)


async def test_a_fold_that_is_in_use_is_kept_for_longer_and_written_once_a_day() -> None:
    tasks, store = Tasks(), Writes()
    writer = LateWriter(store, tasks)
    kept = Folds(store, writer, ttl=lambda: MONTH)
    fold = await kept.keep(ALICE, fold_of(said("one two three"), 2))
    written = []
    for hours in (1, 2, 30, 31, 60):
        kept.used(ALICE, fold, fold.created + hours * 3600)
        await writer.drain(timeout=PATIENCE)
        written.append(len(store.times))
    assert written == [0, 0, 1, 1, 2]
    assert store.times == [MONTH, MONTH]
    await tasks.close(timeout=PATIENCE)


async def test_a_fold_that_was_lost_unnoticed_is_put_back_within_a_minute_of_use() -> None:
    past, store, tasks = said("one two three"), MemoryStore(), Tasks()
    writer = LateWriter(store, tasks)
    kept = Folds(store, writer, ttl=lambda: MONTH)
    fold = await kept.keep(ALICE, fold_of(past, 2))
    kept.used(ALICE, fold, 100.0)
    await store.delete(ALICE, Space.FOLDS, [fold.home + fold.prefix])
    found = []
    for later in (159.0, 160.0):
        kept.used(ALICE, fold, later)
        await tasks.close(timeout=PATIENCE)
        found.append(await Folds(store, writer, ttl=lambda: MONTH).known(ALICE, past))
    assert found == [[], [fold]]
