"""Stores of other packages: found by their scheme, and whatever they do, no request ends with it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from folder_store import FolderStore
from structlog.testing import capture_logs

from proxy.config_files import SettingsError
from proxy.packages import STORES
from proxy.ports import NOBODY, Space, Store, StoreUnavailable
from proxy.settings import load
from proxy.settings.values import STORE_SCHEMES
from proxy.store import open_store
from proxy.store.custom import CustomStore
from proxy.store.memory import MemoryStore
from proxy.store.outage import Outage
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER, PATIENCE
from tests.store.packages import EXAMPLE, install, install_example

FAULTS = """
from proxy.ports import StoreUnavailable

class Failed(Exception):
    pass

async def fails(url):
    raise Failed(f"cannot reach {url}")

async def says_so(url):
    raise StoreUnavailable("it is being moved")

no_function = 5
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder in which packages are found for as long as the test goes on."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "faults.py").write_text(FAULTS)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("faults", None)


def problem_with(url: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load({}, {"TAILFOLD_STORE": url})
    [problem] = caught.value.problems
    return problem


async def kept(store: Store) -> dict[bytes, bytes]:
    await store.put(NOBODY, Space.COUNTS, {b"k": b"a canary"}, ttl=FOREVER)
    return await store.get(NOBODY, Space.COUNTS, [b"k"])


# What the docs show.


def test_what_the_docs_show_of_the_example_is_the_example() -> None:
    page = (EXAMPLE.parents[1] / "custom-stores.md").read_text()
    shown = re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in shown] == ["pyproject.toml", "folder_store.py"]
    for name, code in shown:
        assert code in (EXAMPLE / name).read_text()


# Which scheme is taken.


def test_a_scheme_that_a_package_registers_is_accepted(site: Path) -> None:
    url = "folder:///var/share/tailfold"
    assert STORES in problem_with(url)
    install_example(site)
    assert load({}, {"TAILFOLD_STORE": url}).settings.store_url == url


@pytest.mark.parametrize("url", ["folderr://u:s3cret@host/", "s3cret://host"])
def test_a_scheme_that_nobody_registers_is_refused_and_the_group_named(site: Path, url: str) -> None:
    install_example(site)
    problem = problem_with(url)
    assert "should begin with one of memory://, sqlite://, redis://" in problem
    assert problem.endswith(f"an installed package registers under the entry point group {STORES}")
    assert "s3cret" not in problem


def test_a_scheme_that_two_packages_register_is_refused_with_their_names(site: Path) -> None:
    install_example(site)
    install(site, "another_one", {"folder": "faults:fails"})
    assert problem_with("folder:///x").endswith(
        "has a scheme that more than one installed package registers: another_one, tailfold_folder_store"
    )


@pytest.mark.parametrize("scheme", STORE_SCHEMES)
async def test_a_package_takes_none_of_our_own_schemes(site: Path, tmp_path: Path, scheme: str) -> None:
    install(site, "greedy", {scheme: "faults:fails"})
    tasks, outages = Tasks(), list[str]()
    rest = f"/{tmp_path}/state.db" if scheme == "sqlite" else "" if scheme == "memory" else "127.0.0.1:1"
    with capture_logs() as lines:
        store = open_store(f"{scheme}://{rest}", tasks, on_outage=outages.append)
        assert await kept(store) == {b"k": b"a canary"}
        await store.close()
    assert "faults" not in str(lines)
    assert "faults" not in sys.modules
    await tasks.close(timeout=PATIENCE)


# What becomes of it.


@contextmanager
def opened(url: str, keys: dict[str, bytes] | None = None) -> Iterator[tuple[Store, Tasks, list[str]]]:
    tasks, outages = Tasks(), list[str]()
    yield open_store(url, tasks, keys=keys, on_outage=outages.append, time_limit=PATIENCE), tasks, outages


async def test_it_keeps_what_it_is_given(site: Path, tmp_path: Path) -> None:
    install_example(site)
    with opened(f"folder://{tmp_path}/state") as (store, tasks, outages):
        assert await kept(store) == {b"k": b"a canary"}
        await store.close()
        await tasks.close(timeout=PATIENCE)
    assert outages == []
    there = FolderStore(tmp_path / "state")
    assert await there.get(NOBODY, Space.COUNTS, [b"k"]) == {b"k": b"a canary"}


async def test_the_examples_files_are_for_their_owner_alone_in_a_folder_that_others_can_read(
    tmp_path: Path,
) -> None:
    os.chmod(tmp_path, 0o777)
    (tmp_path / "draft-0").touch(0o666)  # as a process that was killed leaves it behind
    before = os.umask(0)
    try:
        store = FolderStore(tmp_path)
        await store.put(b"alice", Space.FOLDS, {b"1": b"1", b"2": b"2"}, ttl=10)
        await store.put_new(b"alice", Space.FOLDS, b"3", b"3", ttl=None)
        assert await store.claim(b"alice", b"work", b"me", ttl=10)
    finally:
        os.umask(before)
    modes = [
        os.stat(f"{folder}/{name}").st_mode & 0o777
        for folder, _, names in os.walk(tmp_path)
        for name in names
    ]
    assert modes == [0o600] * 5  # the lock is one of them


async def test_it_is_encrypted_like_any_other(site: Path, tmp_path: Path) -> None:
    install_example(site)
    with opened(f"folder://{tmp_path}/state", {"k1": b"1" * 32}) as (store, tasks, outages):
        assert await kept(store) == {b"k": b"a canary"}
        await store.close()
        await tasks.close(timeout=PATIENCE)
    assert outages == []
    [found] = (await FolderStore(tmp_path / "state").get(NOBODY, Space.COUNTS, [b"k"])).values()
    assert b"canary" not in found


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("faults:fails", "the store has raised faults.Failed"),
        ("faults:says_so", "it is being moved"),
        ("faults:no_function", "the store has raised TypeError"),
        ("faults:is_not_there", "the store has raised AttributeError"),
        ("no_module_of_this_name:open", "the store has raised ModuleNotFoundError"),
        ("not a place", "the store has raised AttributeError"),
    ],
)
async def test_one_that_does_not_open_is_an_outage_that_repeats_nothing(
    site: Path, place: str, problem: str
) -> None:
    install(site, "faulty", {"faulty": place})
    with capture_logs() as lines, opened("faulty://u:s3cret@host") as (store, tasks, outages):
        assert await kept(store) == {b"k": b"a canary"}  # in memory
        await store.close()
        await tasks.close(timeout=PATIENCE)
    assert outages == ["unavailable"]
    assert [line["problem"] for line in lines if "cannot be used" in line["event"]] == [problem]
    assert "s3cret" not in str(lines)


async def test_one_that_was_uninstalled_while_we_run_is_an_outage() -> None:
    with pytest.raises(Outage, match="0 packages register the scheme gone"):
        await CustomStore.open("gone://")


class Raising(MemoryStore):
    """Every call fails in its own way, with words that are nobody's business."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def get(self, tenant: bytes, space: Space, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        raise self._error

    async def put(self, *_: object, ttl: float) -> None:
        raise self._error

    async def put_new(self, *_: object, ttl: float | None) -> bytes:
        raise self._error

    async def delete(self, *_: object) -> None:
        raise self._error

    async def claim(self, *_: object, ttl: float) -> bool:
        raise self._error

    async def release(self, *_: object) -> None:
        raise self._error

    async def close(self) -> None:
        raise self._error


CALLS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get(NOBODY, Space.COUNTS, [b"k"]),
    "put": lambda store: store.put(NOBODY, Space.COUNTS, {b"k": b""}, ttl=1),
    "put_new": lambda store: store.put_new(NOBODY, Space.COUNTS, b"k", b"", ttl=1),
    "delete": lambda store: store.delete(NOBODY, Space.COUNTS, [b"k"]),
    "claim": lambda store: store.claim(NOBODY, b"k", b"", ttl=1),
    "release": lambda store: store.release(NOBODY, b"k", b""),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_whatever_it_raises_in_use_is_an_outage_that_names_the_type_only(call: str) -> None:
    with pytest.raises(Outage) as caught:
        await CALLS[call](CustomStore(Raising(LookupError("s3cret"))))  # type: ignore[misc]
    assert str(caught.value) == "the store has raised LookupError"
    assert caught.value.__suppress_context__


async def test_what_it_says_of_itself_is_left_as_it_is() -> None:
    with pytest.raises(StoreUnavailable, match="it is full"):
        await kept(CustomStore(Raising(Outage("full", "it is full"))))
