from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.ports import NOBODY, Space, Store
from proxy.store import open_primary, open_store, sqlite_path
from proxy.store.memory import MemoryStore
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE


async def kept(store: Store) -> dict[bytes, bytes]:
    await store.put(NOBODY, Space.COUNTS, {b"k": b"1"}, ttl=FOREVER)
    return await store.get(NOBODY, Space.COUNTS, [b"k"])


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///state.db", "state.db"),
        ("sqlite:///a/b.db", "a/b.db"),
        ("sqlite:////var/lib/state.db", "/var/lib/state.db"),
        ("sqlite:////home/with%20space/%23.db", "/home/with space/#.db"),
        ("sqlite:////home/plain#and?odd.db", "/home/plain#and?odd.db"),
        ("sqlite:////%C3%BC.db", "/ü.db"),
    ],
)
def test_a_url_names_a_path(url: str, path: str) -> None:
    assert sqlite_path(url) == Path(path)


async def test_a_sqlite_url_keeps_state_in_its_file(tmp_path: Path) -> None:
    tasks, outages = Tasks(), list[str]()
    store = open_store(f"sqlite:///{tmp_path}/a%20b.db", tasks, on_outage=outages.append)
    assert os.listdir(tmp_path) == []  # start-up does not wait for a disk
    assert await kept(store) == {b"k": b"1"}
    assert "a b.db" in os.listdir(tmp_path)
    await store.close()
    await tasks.close(timeout=PATIENCE)


async def test_a_corrupt_file_counts_as_an_outage_though_a_new_one_is_begun(tmp_path: Path) -> None:
    with open(tmp_path / "state.db", "w") as file:  # noqa: ASYNC230 - nobody else is waiting here
        file.write("not a database" * 1000)
    tasks, outages = Tasks(), list[str]()
    with capture_logs() as lines:
        store = open_store(f"sqlite:///{tmp_path}/state.db", tasks, on_outage=outages.append)
        assert await kept(store) == {b"k": b"1"}
    assert outages == ["corrupt"]
    assert [line["log_level"] for line in lines] == ["warning"]
    assert len([name for name in os.listdir(tmp_path) if name.startswith("state.db.corrupt-")]) == 1
    await store.close()
    await tasks.close(timeout=PATIENCE)


async def test_one_that_others_have_encrypted_is_not_used_without_keys(tmp_path: Path) -> None:
    """At the start `serve` refuses it; this is for one that could not be asked then."""
    tasks, outages, url = Tasks(), list[str](), f"sqlite:///{tmp_path}/state.db"
    theirs = open_store(url, tasks, keys={"k1": b"1" * 32}, on_outage=outages.append)
    assert await kept(theirs) == {b"k": b"1"}
    await theirs.close()
    with capture_logs() as lines:
        ours = open_store(url, tasks, on_outage=outages.append)
        await ours.put(NOBODY, Space.COUNTS, {b"ours": b"2"}, ttl=FOREVER)
        assert await ours.get(NOBODY, Space.COUNTS, [b"k", b"ours"]) == {b"ours": b"2"}  # in memory
        await ours.close()
    assert outages == ["sealed"]
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "encryption.keys is not set" in lines[0]["problem"]
    there = await open_primary(url, tasks)
    assert await there.get(NOBODY, Space.COUNTS, [b"ours"]) == {}
    await there.close()
    await tasks.close(timeout=PATIENCE)


async def test_memory_is_just_that() -> None:
    with capture_logs() as lines:
        store = open_store("memory://", Tasks(), on_outage=print)
    assert isinstance(store, MemoryStore)
    assert lines == []


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster"])
async def test_a_shared_store_that_is_not_there_costs_a_warning_that_keeps_the_password(scheme: str) -> None:
    outages: list[str] = []
    tasks = Tasks()
    with capture_logs() as lines:
        url = f"{scheme}://user:hunter2@127.0.0.1:1"
        store = open_store(url, tasks, on_outage=outages.append, time_limit=PATIENCE)
        assert await kept(store) == {b"k": b"1"}  # in memory
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "hunter2" not in str(lines)
    assert outages == ["unavailable"]
    await store.close()
    await tasks.close(timeout=PATIENCE)
