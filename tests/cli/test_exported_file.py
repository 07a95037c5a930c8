"""An export replaces nothing but a regular file, and flows on where there is something to flow into."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import click
import pytest

from proxy.cli.exported_file import written_to
from tests.cli.command import PATIENCE, TAILFOLD, environment, tailfold

EXPORT = ("store", "export", "--store", "sqlite:///state.db")
SECRET = {"TAILFOLD_SECRET": "a secret that is long enough, for a test"}


def write(path: Path | str, *, replacing: bool = False, content: bytes = b"new") -> None:
    with written_to(str(path), replacing=replacing) as out:
        out.write(content)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    write(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["new"]


def test_one_that_is_there_is_replaced_only_on_demand_and_then_for_its_owner_alone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"old")
    there.chmod(0o644)
    with pytest.raises(click.ClickException, match="--force"):
        write(there)
    assert there.read_bytes() == b"old"
    write(there, replacing=True)
    assert there.read_bytes() == b"new"
    assert stat.S_IMODE(there.stat().st_mode) == 0o600


def test_where_it_breaks_off_the_old_file_stays_and_no_other_is_touched(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "there.part").write_bytes(b"somebody's own")
    exporting = written_to(str(tmp_path / "there"), replacing=True)
    exporting.__enter__().write(b"ne")
    exporting.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "there": b"old",
        "there.part": b"somebody's own",
    }


def test_of_a_link_the_file_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there")
    with pytest.raises(click.ClickException, match="--force"):
        write(tmp_path / "link")
    write(tmp_path / "link", replacing=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"new"


@pytest.mark.parametrize("replacing", [False, True])
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path, replacing: bool) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(click.ClickException, match="leads nowhere"):
        write(tmp_path / "link", replacing=replacing)
    assert os.listdir(tmp_path) == ["link"]
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("replacing", [False, True])
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, replacing: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe", replacing=replacing)
    reader.join(PATIENCE)
    assert read == [b"new"]
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("replacing", [False, True])
def test_a_device_is_written_to_and_never_replaced(tmp_path: Path, replacing: bool) -> None:
    # By links of our own: should this go wrong, the machine keeps its devices.
    for name in ("full", "null"):
        (tmp_path / name).symlink_to(f"/dev/{name}")
    write(tmp_path / "null", replacing=replacing)
    with pytest.raises(click.ClickException, match="No space left"):
        write(tmp_path / "full", replacing=replacing)
    assert Path("/dev/full").is_char_device()
    assert sorted(os.listdir(tmp_path)) == ["full", "null"]


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="no file, pipe or terminal"):
        write(tmp_path, replacing=True)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="No such file"):
        write(tmp_path / "none" / "x")


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system has no name for the output")
def test_the_standard_output_by_its_name_is_what_the_shell_has_opened(
    tmp_path: Path, force: tuple[str, ...]
) -> None:
    assert (
        tailfold("store", "import", "--store", "sqlite:///state.db", "/dev/null", home=tmp_path).returncode
        == 1
    )
    (tmp_path / "first.jsonl").write_text("before\n")
    with open(tmp_path / "first.jsonl", "ab") as shells:
        done = subprocess.run(
            [*TAILFOLD, *EXPORT, "/dev/stdout", *force],
            env=environment(tmp_path, SECRET),
            cwd=tmp_path,
            stdout=shells,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0
        assert os.path.samestat(os.fstat(shells.fileno()), (tmp_path / "first.jsonl").stat())
    assert (tmp_path / "first.jsonl").read_text().count("\n") == 1 + 3
