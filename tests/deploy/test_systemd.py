"""The unit as systemd reads it, and what it forbids as Tailfold takes it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path

import aiohttp
import pytest

from proxy.config_files import SettingsError
from proxy.settings import load
from proxy.simulator import Simulator
from tests.deploy.tools import DEPLOY, accepts, tool
from tests.simulator.talk import chat, user

FOLDER = DEPLOY / "systemd"
UNIT = FOLDER / "tailfold.service"
SETTINGS = FOLDER / "tailfold.yaml"
# Of 100, which is no protection at all. What remains is that it has a network, which is what it is for.
MOST_EXPOSED = 15

OPTIONS: dict[str, list[str]] = defaultdict(list)
for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
    OPTIONS[name].append(value)


def environment() -> dict[str, str]:
    """As the unit sets it; %S is the folder for states of a system's services."""
    [words] = OPTIONS["Environment"]
    return dict(word.replace("%S", "/var/lib").split("=", 1) for word in words.split())


def secrets() -> dict[str, str]:
    lines = (FOLDER / "secrets.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def settings_flag(command: str) -> Path:
    program, verb, flag, file = command.split()
    assert (verb, flag) == ("serve", "--config")
    assert program == "/opt/tailfold/bin/tailfold"
    return Path(file)


def test_the_unit_is_valid(tmp_path: Path) -> None:
    # It is checked that the program is there, so here it is this checkout's.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/tailfold/bin/tailfold", tool("tailfold")))
    assert accepts("systemd-analyze", "verify", "--man=no", unit).strip() == ""


def test_the_unit_is_hardened() -> None:
    most = f"--threshold={MOST_EXPOSED}"
    accepts("systemd-analyze", "security", "--no-pager", "--offline=true", most, UNIT)


def test_the_settings_are_accepted() -> None:
    file = settings_flag(OPTIONS["ExecStart"][0])
    assert file.name == SETTINGS.name
    filled = {name: f"filled-in-{name}" for name in secrets()} | {"TAILFOLD_STORE": "redis://store"}
    for given in (secrets(), filled, {**filled, "TAILFOLD_HOST": "0.0.0.0"}):
        load({"config": str(SETTINGS)}, environment() | given)


def test_other_machines_are_not_let_in_without_a_token() -> None:
    with pytest.raises(SettingsError, match=r"admin\.token"):
        load({"config": str(SETTINGS)}, environment() | secrets() | {"TAILFOLD_HOST": "0.0.0.0"})


def test_the_state_lies_in_the_folder_that_systemd_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environment().items():
        monkeypatch.setenv(variable, value)
    assert OPTIONS["StateDirectory"] == ["tailfold"]
    store = load({"config": str(SETTINGS)}, environment()).settings.store_url
    assert store == "sqlite:////var/lib/tailfold/tailfold.db"


def test_it_gets_longer_to_stop_than_it_takes_to_drain_and_only_the_parent_is_told() -> None:
    drain = load({"config": str(SETTINGS)}, {}).settings.timeouts.drain
    assert float(OPTIONS["TimeoutStopSec"][0]) >= drain + 10
    # Workers are told by their parent. Told twice, they would not drain.
    assert OPTIONS["KillMode"] == ["mixed"]


async def test_wrong_settings_are_not_tried_again(tmp_path: Path) -> None:
    wrong = tmp_path / "tailfold.yaml"
    wrong.write_text("upstraem: https://api.openai.com/v1\n")
    command = [tool("tailfold"), "serve", "--config", str(wrong)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(60):
        assert OPTIONS["RestartPreventExitStatus"] == [str(await process.wait())]


# As MemoryDenyWriteExecute=yes does it: PR_SET_MDWE with PR_MDWE_REFUSE_EXEC_GAIN, which children inherit.
CANNOT = 77
FORBIDDING = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:
    sys.exit({CANNOT})
os.execv(sys.argv[1], sys.argv[1:])
"""


async def test_tailfold_works_where_no_code_may_be_made_at_run_time(
    upstream: Simulator, tmp_path: Path
) -> None:
    assert OPTIONS["MemoryDenyWriteExecute"] == ["yes"]
    options = ["--config", str(SETTINGS), "--port", "0", "--workers", "2", "--upstream", upstream.base_url]
    environ = {"PATH": "", "XDG_STATE_HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORBIDDING, tool("tailfold"), "serve", *options),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            said = re.search(rb"http://127.0.0.1:(\d+)", await process.stdout.readline())
            if said is None and await process.wait() == CANNOT:
                pytest.skip("this kernel cannot forbid it")
            assert said
            url = f"{said[0].decode()}/v1/chat/completions"
            async with aiohttp.ClientSession() as client:
                answer = await client.post(url, json=chat(user("hello")))
                assert (answer.status, answer.headers["X-Tailfold-Action"]) == (200, "pass")
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
