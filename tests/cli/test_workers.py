"""Several workers: one address, one banner, one life."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from proxy.cli.workers import Restarts
from tests.cli.command import Serving, children_of, eventually, is_alive, serving

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc")


def test_each_failure_waits_longer_up_to_a_limit() -> None:
    restarts = Restarts(first_delay=1, longest_delay=5, attempts=6)
    assert [restarts.delay_after(0) for _ in range(6)] == [1, 2, 4, 5, 5, None]


def test_a_worker_that_lived_for_a_while_is_forgiven() -> None:
    restarts = Restarts(first_delay=1, attempts=3, steady_after=10)
    assert [restarts.delay_after(lifetime) for lifetime in (0, 0, 10, 0, 0)] == [1, 2, 1, 2, None]


@needs_proc
def test_workers_share_one_address_and_leave_nothing_behind(tmp_path: Path) -> None:
    with serving("--workers", "2", home=tmp_path) as proxy:
        workers = children_of(proxy.pid)
        assert len(workers) == 2
        assert _metrics_folders(tmp_path) != []
        assert proxy.health()["name"] == "tailfold"
        assert proxy.end() == 0
        assert proxy.line() == ""  # the six lines came once, not once per worker
        assert not any(map(is_alive, workers))
        assert _metrics_folders(tmp_path) == []


@needs_proc
@pytest.mark.parametrize(("store", "warned"), [("memory://", True), ("sqlite:///state.db", False)])
def test_workers_that_share_nothing_are_warned_of(tmp_path: Path, store: str, warned: bool) -> None:
    with serving("--workers", "2", "--store", store, home=tmp_path) as proxy:
        assert proxy.end() == 0
    assert len([line for line in proxy.errors if "workers share nothing" in line]) == warned


def test_an_interrupt_drains_the_workers_too(tmp_path: Path) -> None:
    with serving("--workers", "2", home=tmp_path) as proxy:
        workers = children_of(proxy.pid)
        assert proxy.end(signal.SIGINT) == 0
        assert not any(map(is_alive, workers))


@needs_proc
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with serving("--workers", "2", home=tmp_path) as proxy:
        victim, survivor = children_of(proxy.pid)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(set(children_of(proxy.pid)) - {victim, survivor}) == 1)
        os.kill(survivor, signal.SIGKILL)
        eventually(lambda: _answers(proxy))  # nobody of the first two is left to do it
        assert proxy.end() == 0


@needs_proc
def test_workers_that_keep_dying_end_the_whole_with_code_1(tmp_path: Path) -> None:
    with serving("--workers", "2", home=tmp_path) as proxy:

        def ended_after_another_blow() -> bool:
            for worker in children_of(proxy.pid):
                try:
                    os.kill(worker, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it went between our looking and our striking
            return proxy.process.poll() is not None

        eventually(ended_after_another_blow)
        assert proxy.exit_code() == 1
        assert _metrics_folders(tmp_path) == []


@needs_proc
def test_workers_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with serving("--workers", "2", home=tmp_path) as proxy:
        workers = children_of(proxy.pid)
        proxy.end(signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, workers)))


@needs_proc
def test_secrets_do_not_stand_in_the_command_line_of_a_worker(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(
        f"admin: {{token: t0ken-in-a-file}}\nstore: redis://:s3cret@127.0.0.1:1/0\nsecret: {'s' * 32}\n"
    )
    with serving("--workers", "2", "--config", str(file), home=tmp_path) as proxy:
        for worker in children_of(proxy.pid):
            for name in ("cmdline", "environ"):
                seen = Path(f"/proc/{worker}/{name}").read_text()
                assert "t0ken" not in seen
                assert "s3cret" not in seen
        assert proxy.end() == 0


def test_a_folder_named_like_our_package_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "__init__.py").write_text("raise SystemExit('a package of the user')")
    with serving("--workers", "2", home=tmp_path) as proxy:
        assert proxy.health()["name"] == "tailfold"
        assert proxy.end() == 0


def _answers(proxy: Serving) -> bool:
    try:
        return bool(proxy.health()["name"] == "tailfold")
    except OSError:
        return False


def _metrics_folders(home: Path) -> list[Path]:
    return list(home.glob("tailfold-metrics-*"))
