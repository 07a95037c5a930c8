"""The frame of the command: help, version, manners."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy import __version__
from tests.cli.command import tailfold


def test_the_version_is_told(tmp_path: Path) -> None:
    assert tailfold("--version", home=tmp_path).stdout == f"tailfold, version {__version__}\n"


@pytest.mark.parametrize(
    "command", [(), ("serve",), ("run",), ("demo",), ("check-config",), ("config", "show"), ("doctor",)]
)
def test_help_shows_examples(command: tuple[str, ...], tmp_path: Path) -> None:
    told = tailfold(*command, "--help", home=tmp_path)
    assert told.returncode == 0
    assert told.stdout.startswith("Usage: tailfold ")
    assert "Example" in told.stdout


def test_the_help_of_serve_names_each_flag_with_its_variable(tmp_path: Path) -> None:
    told = " ".join(tailfold("serve", "--help", home=tmp_path).stdout.split())
    for name in ("host", "port", "upstream", "store", "workers", "mode", "config"):
        assert f"--{name}" in told
        assert f"TAILFOLD_{name.upper()}" in told


def test_a_secret_cannot_be_given_as_a_flag_and_the_help_says_why(tmp_path: Path) -> None:
    told = tailfold("serve", "--help", home=tmp_path).stdout
    assert "--admin" not in told
    assert "TAILFOLD_ADMIN__TOKEN" in told


@pytest.mark.parametrize(
    "command", [("serve",), ("check-config",), ("config", "show"), ("run", "true"), ("doctor",)]
)
def test_wrong_settings_end_every_command_with_code_2_and_one_line_each(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    environ = {"TAILFOLD_MODE": "sometimes", "TAILFOLD_UPSTRAEM": "x", "TAILFOLD_STORE": "redis:s3cret"}
    told = tailfold(*command, home=tmp_path, env=environ)
    assert told.returncode == 2
    assert told.stdout == ""
    assert sorted(line.partition(":")[0] for line in told.stderr.splitlines()) == [
        "environment TAILFOLD_MODE",
        "environment TAILFOLD_STORE",
        "environment TAILFOLD_UPSTRAEM",
    ]
    assert "s3cret" not in told.stderr


def test_an_unknown_flag_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    told = tailfold("serve", "--upstraem", "x", home=tmp_path)
    assert told.returncode == 2
    assert "--upstream" in told.stderr


def test_a_worker_is_not_started_by_hand(tmp_path: Path) -> None:
    told = tailfold("worker", home=tmp_path)
    assert told.returncode == 2
    assert "tailfold serve" in told.stderr
