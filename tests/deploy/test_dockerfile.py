"""What the Dockerfile says holds, as far as it can be seen without Docker."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from proxy.config_files import SettingsError
from proxy.settings import load
from tests.deploy.tools import DEPLOY, ROOT, accepts
from tests.running import Running

FILE = DEPLOY / "Dockerfile"
TEXT = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE))
TOKEN = {"TAILFOLD_ADMIN__TOKEN": "of-this-test"}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^\s*{name} (.+)$", TEXT, re.MULTILINE)


def environment() -> dict[str, str]:
    """Of the final stage, which is the last that sets one."""
    return dict(pair.split("=", 1) for pair in instructions("ENV")[-1].split())


def copied() -> list[str]:
    lines = [line.split() for line in instructions("COPY")]
    return [source for words in lines if not words[0].startswith("--from") for source in words[:-1]]


def left_out_of_the_build() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_linter_finds_nothing() -> None:
    accepts("hadolint", "--failure-threshold", "style", FILE)


def test_all_that_is_copied_is_there_and_is_let_in() -> None:
    everything, *rest = left_out_of_the_build()
    let_in = {line[1:] for line in rest if line.startswith("!")}
    assert everything == "*"
    assert let_in == set(copied())
    assert all((ROOT / source).exists() for source in copied())


def test_what_is_let_in_is_under_version_control_and_holds_no_database() -> None:
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--", *copied()]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ignored.returncode != 0:
        pytest.skip("not a git checkout")
    assert [line for line in ignored.stdout.splitlines() if "__pycache__" not in line] == []
    assert "**/__pycache__" in left_out_of_the_build()


def test_the_hashes_of_all_that_builds_the_wheel_are_taken_from_the_lock() -> None:
    [taken] = re.findall(r"awk '.+?' requirements-dev.lock", TEXT)
    lock = subprocess.run(["sh", "-c", taken], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^([\w-]+)==", lock, re.MULTILINE)
    assert "hatchling" in names
    assert len(re.findall(r"--hash=sha256:", lock)) >= len(names)
    assert {needed for name in names for needed in needed_by(name)} <= set(names)


def needed_by(name: str) -> set[str]:
    """By a distribution as it is installed here; what only some Pythons need, the image's does not."""
    lines = [line for line in requires(name) or [] if "extra ==" not in line and "python" not in line]
    return {re.split(r"[^\w-]", line)[0] for line in lines}


def test_it_runs_as_a_user_who_is_a_number_and_not_root() -> None:
    user, group = instructions("USER")[-1].split(":")
    assert int(user) >= 10000
    assert int(group) >= 10000
    assert f"-o {user} -g {group} -m 0700 {instructions('VOLUME')[0]}" in TEXT


def test_it_is_stopped_and_started_without_a_shell() -> None:
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["tailfold"]
    assert json.loads(instructions("CMD")[0]) == ["serve"]


def test_no_pip_comes_along_and_nothing_is_compiled() -> None:
    assert "python -m venv --without-pip" in TEXT
    for installed in re.findall(r"install .+?\.lock", TEXT):
        assert "--require-hashes --only-binary :all:" in installed


def test_the_settings_of_the_image_are_accepted_with_a_token_and_only_then() -> None:
    settings = load({}, environment() | TOKEN).settings
    assert (settings.host, settings.port) == ("0.0.0.0", int(instructions("EXPOSE")[0]))
    with pytest.raises(SettingsError, match=r"admin\.token"):
        load({}, environment())


def test_the_state_lies_in_the_volume_and_a_file_may_still_name_another_store(tmp_path: Path) -> None:
    look = "from proxy.settings import load; print(load({}, {}).settings.store_url)"
    command = [sys.executable, "-c", look]
    environ = environment() | {"PATH": ""}
    told = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"sqlite:///{instructions('VOLUME')[0]}/tailfold.db"
    file = tmp_path / "tailfold.yaml"
    file.write_text("store: memory://\n")
    assert load({"config": str(file)}, environment() | TOKEN).settings.store == "memory://"


async def health(**environ: str) -> int:
    """The exit code of the image's health check."""
    [check] = re.findall(r"^HEALTHCHECK .*?CMD (\[.+\])$", TEXT, re.MULTILINE)
    name, *arguments = json.loads(check)
    assert name == "python"
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environ, stderr=asyncio.subprocess.DEVNULL
    )
    async with asyncio.timeout(30):
        return await process.wait()


async def test_the_health_check_passes_where_tailfold_listens(tailfold: Running) -> None:
    assert await health(TAILFOLD_PORT=str(tailfold.port)) == 0


async def test_the_health_check_asks_no_proxy_of_the_environment(tailfold: Running) -> None:
    nobody = "http://127.0.0.1:9"
    assert await health(TAILFOLD_PORT=str(tailfold.port), http_proxy=nobody, HTTP_PROXY=nobody) == 0


async def test_the_health_check_fails_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert await health(TAILFOLD_PORT=str(port)) == 1


async def test_the_health_check_fails_where_somebody_answers_with_an_error() -> None:
    async def unwell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Unwell\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(unwell, "127.0.0.1", 0) as server:
        assert await health(TAILFOLD_PORT=str(server.sockets[0].getsockname()[1])) == 1
