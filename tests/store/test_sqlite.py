from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.ports import NOBODY, Space
from proxy.store.outage import Outage
from proxy.store.sqlite import SqliteStore
from proxy.store.sqlite_file import MIGRATIONS, FileOptions
from tests.store.doubles import FOREVER, PATIENCE, Clock
from tests.store.processes import CLAIMED_FOR, PATIENT, acting, go, number_key

IMPATIENT = FileOptions(busy_timeout=0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path, IMPATIENT)
    yield opened
    await opened.close()


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def put(store: SqliteStore, values: dict[bytes, bytes], ttl: float = FOREVER) -> None:
    await store.put(NOBODY, Space.COUNTS, values, ttl=ttl)


async def get(store: SqliteStore, *keys: bytes) -> dict[bytes, bytes]:
    return await store.get(NOBODY, Space.COUNTS, keys)


def spoiled(path: Path, keep: int = 0) -> bytes:
    """The file's new content: garbage behind the first `keep` bytes, and no shorter than before: a file that
    has lost its end is found out when it is opened.
    """
    before = path.read_bytes() if path.exists() else b""
    garbage = b"not a database " * max(1000, len(before) // 15 + 1)
    path.write_bytes(before[:keep] + garbage[: max(15_000, len(before) - keep)])
    return path.read_bytes()


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        count: int = other.execute("SELECT count(*) FROM facts").fetchone()[0]
        return count


# Between two lives, and between processes.


async def test_everything_is_there_after_a_restart(path: Path) -> None:
    store = await SqliteStore.open(path)
    await put(store, {b"k": b"1"})
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None)
    await store.close()
    store = await SqliteStore.open(path)
    assert await get(store, b"k") == {b"k": b"1"}
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"first"
    await store.close()


async def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path) -> None:
    with acting("write_without_end", path, "writer") as process:
        go(process)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(200)]
        process.kill()
        lines += process.stdout.read().splitlines()
    acknowledged = [number_key("writer", int(line)) for line in lines]
    store = await SqliteStore.open(path)
    assert set(await get(store, *acknowledged)) == set(acknowledged)
    assert store.replaced is None
    await store.close()


async def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    owners = ["a", "b", "c", "d"]
    with ExitStack() as stack:
        processes = [stack.enter_context(acting("write_some", path, owner)) for owner in owners]
        for process in processes:
            go(process)
        assert [process.wait(PATIENCE) for process in processes] == [0, 0, 0, 0]
    store = await SqliteStore.open(path)
    keys = [number_key(owner, number) for owner in owners for number in range(100)]
    assert set(await get(store, *keys)) == set(keys)
    await store.close()


def answers_of(act: str, path: Path) -> list[list[str]]:
    """What four processes say that do the same at once."""
    with ExitStack() as stack:
        processes = [stack.enter_context(acting(act, path, owner)) for owner in "abcd"]
        for process in processes:
            go(process)
        return [process.communicate(timeout=PATIENCE)[0].split() for process in processes]


async def test_processes_that_put_something_new_at_once_agree_on_one_winner(path: Path) -> None:
    answers = answers_of("put_new", path)
    [winner] = answers[0]
    assert answers == [[winner]] * 4
    store = await SqliteStore.open(path)
    assert await store.get(NOBODY, Space.FOLDS, [b"prefix"]) == {b"prefix": winner.encode()}
    await store.close()


async def test_a_process_killed_right_after_it_has_put_something_new_has_not_lost_it(path: Path) -> None:
    with acting("put_new_and_stay", path, "killed") as process:
        go(process)
        assert process.stdout is not None
        winner = process.stdout.readline().strip().encode()
        process.kill()
        process.wait(PATIENCE)
        store = await SqliteStore.open(path)
        assert await store.put_new(NOBODY, Space.FOLDS, b"prefix", b"later", ttl=FOREVER) == winner
    await store.close()


def test_a_claim_is_given_to_one_process_only(path: Path) -> None:
    claimed = [number for answer in answers_of("claim_some", path) for number in answer]
    assert sorted(map(int, claimed)) == list(range(50))


async def test_a_holder_that_was_killed_is_replaced_when_its_time_is_over(path: Path) -> None:
    with acting("claim_some_and_stay", path, "killed") as process:
        go(process)
        assert process.stdout is not None
        assert len(process.stdout.readline().split()) == 50
        process.kill()
        process.wait(PATIENCE)
    clock = Clock()
    clock.now = time.time()
    store = await SqliteStore.open(path, clock=clock)
    assert not await store.claim(NOBODY, bytes([7]), b"heir", ttl=CLAIMED_FOR)
    clock.now += CLAIMED_FOR
    assert await store.claim(NOBODY, bytes([7]), b"heir", ttl=CLAIMED_FOR)
    assert not await store.claim(NOBODY, bytes([7]), b"killed", ttl=CLAIMED_FOR)
    await store.close()


async def test_a_process_ends_though_its_store_is_open_and_waiting(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    with write_lock(path), acting("leave_it_open", path, "leaver") as process:
        go(process)
        assert process.wait(PATIENCE / 2) == 0  # it would wait for the lock for twice as long


async def test_a_worker_goes_on_while_another_brings_the_file_up_to_date(path: Path) -> None:
    older = await SqliteStore.open(path, FileOptions(migrations=MIGRATIONS[:1]))
    await put(older, {b"before": b"1"})
    await older.put_new(NOBODY, Space.SERVER, b"secret", b"first", ttl=None)
    newer = await SqliteStore.open(path)
    await put(older, {b"after": b"2"})
    for store in (older, newer):
        assert await get(store, b"before", b"after") == {b"before": b"1", b"after": b"2"}
        assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"second", ttl=None) == b"first"
        await store.close()


# The file.


async def test_only_the_owner_may_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "new" / "state.db"
        store = await SqliteStore.open(path)
        await put(store, {b"k": b"1"})
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    await store.close()


async def test_the_folder_is_found_again_after_the_working_directory_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await SqliteStore.open(Path("state.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await put(store, {b"k": b"1"})
    assert await get(store, b"k") == {b"k": b"1"}
    await store.close()


async def test_expired_rows_leave_the_file_a_batch_at_a_time(path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, clock=clock)
    await put(store, {str(number).encode(): b"" for number in range(700)}, ttl=10)
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"stays", ttl=None)
    clock.now += 100
    await put(store, {b"early": b""})
    assert rows(path) == 702  # it is not yet time to look
    clock.now += 300
    await put(store, {b"first": b""})
    assert rows(path) == 203
    await put(store, {b"second": b""})
    assert rows(path) == 4
    assert set(await get(store, b"early", b"first", b"second")) == {b"early", b"first", b"second"}
    assert await store.put_new(NOBODY, Space.SERVER, b"secret", b"new", ttl=None) == b"stays"
    await store.close()


async def test_large_rows_leave_the_file_a_few_at_a_time(path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(path, clock=clock)
    await put(store, {str(number).encode(): bytes(1024**2) for number in range(5)}, ttl=10)
    clock.now += 300
    left = []
    for _ in range(4):
        await put(store, {b"k": b""})
        left.append(rows(path) - 1)
    assert left == [3, 1, 0, 0]
    await store.close()


# What may go wrong.


async def test_a_locked_file_is_told_and_can_be_read_meanwhile(store: SqliteStore, path: Path) -> None:
    await put(store, {b"k": b"1"})
    with write_lock(path):
        with pytest.raises(Outage) as caught:
            await put(store, {b"k": b"2"})
        assert caught.value.reason == "locked"
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        with pytest.raises(Outage):
            await store.put_new(NOBODY, Space.SERVER, b"secret", b"1", ttl=None)
        assert await get(store, b"k") == {b"k": b"1"}
    await put(store, {b"k": b"2"})
    assert await get(store, b"k") == {b"k": b"2"}


async def test_a_full_disk_is_told_and_leaves_nothing_half_written(path: Path) -> None:
    store = await SqliteStore.open(path, FileOptions(most_bytes=256 * 1024))
    await put(store, {b"before": b"1"})
    with pytest.raises(Outage) as caught:
        await put(store, {b"small": b"1", b"large": bytes(1024**2)})
    assert caught.value.reason == "full"
    assert await get(store, b"before", b"small", b"large") == {b"before": b"1"}
    await put(store, {b"after": b"1"})
    await store.close()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666, 0o606])
async def test_one_that_others_can_read_is_made_private_when_it_is_opened(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state.db"
    earlier = await SqliteStore.open(path)  # still in use, so that -wal and -shm lie beside it
    await put(earlier, {b"k": b"1"})
    for name in os.listdir(tmp_path):
        os.chmod(tmp_path / name, mode)
    with capture_logs() as lines:
        store = await SqliteStore.open(path)
        assert await get(store, b"k") == {b"k": b"1"}
    assert {name: os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)} == {
        "state.db": 0o600,
        "state.db-wal": 0o600,
        "state.db-shm": 0o600,
    }
    assert ["alone now" in line["event"] for line in lines] == [True]
    await store.close()
    with capture_logs() as lines:
        await (await SqliteStore.open(path)).close()
    assert lines == []
    await earlier.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file somebody else's")
async def test_of_one_that_is_somebody_elses_a_warning_says_that_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await (await SqliteStore.open(path)).close()
    path.chmod(0o644)
    os.chown(path, 65534, 65534)
    with capture_logs() as lines:
        await (await SqliteStore.open(path)).close()
    assert [(line["log_level"], "chmod 600" in line["event"]) for line in lines] == [("warning", True)]
    assert path.stat().st_mode & 0o777 == 0o644


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Root may write anywhere, so root becomes somebody else for a while."""
    folder.chmod(0o555)
    for file in folder.iterdir():
        file.chmod(0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that somebody else can look into; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "state"
        folder.mkdir()
        yield folder


@pytest.mark.parametrize("exists", [True, False])
async def test_a_place_that_cannot_be_written_to_is_told(open_folder: Path, exists: bool) -> None:
    path = open_folder / "state.db"
    if exists:
        await (await SqliteStore.open(path)).close()
    with unwritable(open_folder), pytest.raises(Outage) as caught:
        await SqliteStore.open(path)
    assert caught.value.reason == "readonly"
    assert path.exists() == exists


async def test_a_path_that_cannot_be_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "state.db", tmp_path / "zero\0byte"):
        with pytest.raises(Outage) as caught:
            await SqliteStore.open(path)
        assert caught.value.reason == "unavailable"


async def test_a_file_that_is_taken_away_is_noticed_by_the_next_write(store: SqliteStore, path: Path) -> None:
    os.rename(path, f"{path}.elsewhere")
    writes = [
        put(store, {b"k": b"1"}),
        store.put_new(NOBODY, Space.FOLDS, b"k", b"1", ttl=FOREVER),
        store.delete(NOBODY, Space.COUNTS, [b"k"]),
        store.claim(NOBODY, b"k", b"holder", ttl=FOREVER),
    ]
    for write in writes:
        with pytest.raises(Outage) as caught:
            await write
        assert caught.value.reason == "unavailable"
        assert "moved" in str(caught.value)


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()
    with pytest.raises(Outage):
        await get(store, b"k")
    with pytest.raises(Outage):
        await put(store, {b"k": b"1"})


async def test_a_caller_who_leaves_does_not_harm_the_next(path: Path) -> None:
    store = await SqliteStore.open(path, PATIENT)
    with write_lock(path):
        leaving = [
            asyncio.ensure_future(put(store, {b"left": b"1"})),
            asyncio.ensure_future(get(store, b"k")),
        ]
        await asyncio.sleep(0)  # both have handed over their question
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        assert all(task.cancelled() for task in leaving)
    await put(store, {b"k": b"1"})
    assert await get(store, b"k") == {b"k": b"1"}
    await store.close()


# Corrupt files are set aside, once.


def set_aside_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob("state.db.corrupt-*"))


async def test_a_file_that_is_no_database_is_set_aside_and_a_fresh_one_begun(path: Path) -> None:
    before = spoiled(path)
    with capture_logs() as lines:
        store = await SqliteStore.open(path)
    await put(store, {b"k": b"1"})
    assert await get(store, b"k") == {b"k": b"1"}
    assert [file.read_bytes() for file in set_aside_files(path)] == [before]
    assert set_aside_files(path) == [store.replaced]
    assert [line["log_level"] for line in lines] == ["warning"]
    await store.close()


async def make_corrupt_inside(path: Path) -> list[bytes]:
    """A file that opens well, and breaks when its rows are read."""
    store = await SqliteStore.open(path)
    keys = [number.to_bytes(4, "big") for number in range(3000)]
    await put(store, {key: bytes(100) for key in keys})
    await store.close()
    spoiled(path, keep=3 * 4096)
    return keys


async def test_corruption_that_is_noticed_later_is_set_aside_with_all_that_belongs_to_it(path: Path) -> None:
    keys = await make_corrupt_inside(path)
    store = await SqliteStore.open(path)
    with pytest.raises(Outage) as caught:
        await get(store, *keys)
    assert caught.value.reason == "corrupt"
    (kept, *sidecars) = set_aside_files(path)
    assert {file.name.removeprefix(kept.name) for file in sidecars} == {"-wal", "-shm"}
    assert path.name not in os.listdir(path.parent)
    assert kept.name in str(caught.value)
    fresh = await SqliteStore.open(path)
    assert await get(fresh, *keys) == {}
    await fresh.close()


async def test_the_second_to_notice_does_not_set_aside_the_fresh_file(path: Path) -> None:
    keys = await make_corrupt_inside(path)
    first, second = await SqliteStore.open(path), await SqliteStore.open(path)
    with pytest.raises(Outage):
        await get(first, *keys)
    fresh = await SqliteStore.open(path)
    await put(fresh, {b"k": b"1"})
    aside = set_aside_files(path)
    with pytest.raises(Outage) as caught:
        await get(second, *keys)
    assert caught.value.reason == "corrupt"
    assert set_aside_files(path) == aside
    assert await get(fresh, b"k") == {b"k": b"1"}
    await fresh.close()


async def test_processes_that_find_a_corrupt_file_at_once_set_it_aside_once(path: Path) -> None:
    spoiled(path)
    owners = ["a", "b", "c", "d"]
    with ExitStack() as stack:
        processes = [stack.enter_context(acting("write_some", path, owner)) for owner in owners]
        for process in processes:
            go(process)
        assert [process.wait(PATIENCE) for process in processes] == [0, 0, 0, 0]
    assert len(set_aside_files(path)) == 1
    store = await SqliteStore.open(path)
    keys = [number_key(owner, number) for owner in owners for number in range(100)]
    assert set(await get(store, *keys)) == set(keys)
    await store.close()
