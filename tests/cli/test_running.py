"""`tailfold run -- CMD`: which proxy the command gets, and that the command does not notice us otherwise."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.addresses import listening_socket, port_of
from tests.cli.command import (
    PATIENCE,
    TAILFOLD,
    Serving,
    children_of,
    environment,
    eventually,
    get_json,
    is_alive,
    serving,
    started,
    tailfold,
)
from tests.cli.upstream import listening_upstream

# A client of few words: what it was told, and what it gets from there.
CLIENT = """
import json, os, urllib.request
base = os.environ["OPENAI_BASE_URL"]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
health = json.load(opener.open(base.removesuffix("/v1") + "/healthz"))
print(json.dumps({
    "base": base, "also": os.environ["OPENAI_API_BASE"], "name": health["name"],
    "headers": os.environ["OPENAI_CUSTOM_HEADERS"],
}))
"""
# And one that asks the upstream behind it.
ASKING = """
import os, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(os.environ["OPENAI_BASE_URL"] + "/models").read().decode())
"""


def told_by_client(*flags: str, home: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    told = tailfold("run", *flags, "--", sys.executable, "-c", CLIENT, home=home, env=env)
    assert told.returncode == 0, told.stderr
    content: dict[str, Any] = json.loads(told.stdout)
    return content


@pytest.fixture
def free_port() -> str:
    with listening_socket("127.0.0.1", 0) as sock:
        return str(port_of(sock))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Serving]:
    with serving(home=tmp_path) as proxy:
        yield proxy


# Which proxy.


def test_where_none_is_running_it_starts_one_for_the_command_only(free_port: str, tmp_path: Path) -> None:
    client = told_by_client("--port", free_port, home=tmp_path)
    assert client["name"] == "tailfold"
    assert client["base"] == client["also"]
    assert client["base"] != f"http://127.0.0.1:{free_port}/v1"
    assert client["headers"].startswith("X-Conversation-Id: run-")
    with pytest.raises(OSError):
        get_json(client["base"].removesuffix("/v1") + "/healthz")


def test_every_run_is_a_conversation_of_its_own(running: Serving, tmp_path: Path) -> None:
    ids = {told_by_client("--port", running.port, home=tmp_path)["headers"] for _ in range(2)}
    assert len(ids) == 2


def test_a_running_one_is_taken(running: Serving, tmp_path: Path) -> None:
    assert told_by_client("--port", running.port, home=tmp_path)["base"] == f"{running.url}/v1"
    assert running.health()["status"] == "ok"  # and it is not ours to stop


def test_a_client_that_points_at_the_running_one_already_stays_there(
    running: Serving, tmp_path: Path
) -> None:
    environ = {"OPENAI_BASE_URL": f"{running.url}/v1", "TAILFOLD_PORT": running.port}
    assert told_by_client(home=tmp_path, env=environ)["base"] == f"{running.url}/v1"


@pytest.mark.parametrize("flags", [("--upstream", "http://127.0.0.1:9/v1"), ("--mode", "observe")])
def test_special_wishes_mean_a_proxy_of_its_own(
    flags: tuple[str, ...], running: Serving, tmp_path: Path
) -> None:
    assert told_by_client("--port", running.port, *flags, home=tmp_path)["base"] != f"{running.url}/v1"


def test_so_does_a_configuration_file(running: Serving, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"port: {running.port}\n")
    assert told_by_client("--config", str(file), home=tmp_path)["base"] != f"{running.url}/v1"


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_the_server_a_client_points_at_becomes_the_upstream(
    variable: str, running: Serving, tmp_path: Path
) -> None:
    with listening_upstream() as upstream:
        environ = {variable: upstream.url, "TAILFOLD_PORT": running.port}
        told = tailfold("run", "--", sys.executable, "-c", ASKING, home=tmp_path, env=environ)
    assert json.loads(told.stdout) == {"object": "list", "data": []}
    assert [request.path for request in upstream.seen] == ["/v1/models"]


def test_an_explicit_upstream_wins_over_it(free_port: str, tmp_path: Path) -> None:
    with listening_upstream() as upstream:
        told = tailfold(
            *("run", "--port", free_port, "--upstream", upstream.url, "--", sys.executable, "-c", ASKING),
            home=tmp_path,
            env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
        )
    assert told.returncode == 0, told.stderr
    assert len(upstream.seen) == 1


def test_another_server_at_the_configured_address_is_an_upstream_like_any_other(tmp_path: Path) -> None:
    with listening_upstream() as upstream:
        environ = {"OPENAI_BASE_URL": upstream.url, "TAILFOLD_PORT": str(upstream.port)}
        told = tailfold("run", "--", sys.executable, "-c", ASKING, home=tmp_path, env=environ)
    assert told.returncode == 0, told.stderr
    assert "/v1/models" in [request.path for request in upstream.seen]


def test_what_was_meant_for_a_server_that_is_gone_does_not_go_to_openai(
    free_port: str, tmp_path: Path
) -> None:
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{free_port}/v1", "TAILFOLD_PORT": free_port}
    told = tailfold("run", "--", "true", home=tmp_path, env=environ)
    assert told.returncode == 1
    assert "nothing listens" in told.stderr


def test_a_client_url_that_is_none_is_named_by_its_variable(tmp_path: Path) -> None:
    told = tailfold("run", "--", "true", home=tmp_path, env={"OPENAI_BASE_URL": "openrouter.ai"})
    assert told.returncode == 2
    assert told.stderr.startswith("environment OPENAI_BASE_URL: should be a full URL")


# The command does not notice us.


def test_the_commands_exit_code_is_ours(free_port: str, tmp_path: Path) -> None:
    assert tailfold("run", "--port", free_port, "--", "sh", "-c", "exit 7", home=tmp_path).returncode == 7


def test_a_command_that_was_killed_is_told_as_a_shell_does(free_port: str, tmp_path: Path) -> None:
    told = tailfold("run", "--port", free_port, "--", "sh", "-c", "kill -KILL $$", home=tmp_path)
    assert told.returncode == 128 + signal.SIGKILL


def test_a_command_that_does_not_exist_is_127(tmp_path: Path) -> None:
    told = tailfold("run", "--", "no-such-command", home=tmp_path)
    assert (told.returncode, told.stderr) == (127, "tailfold: command not found: no-such-command\n")


@pytest.mark.parametrize("mode", [0o644, None], ids=["a file that may not be run", "a folder"])
def test_what_is_there_and_cannot_be_run_is_126(tmp_path: Path, mode: int | None) -> None:
    there = tmp_path / "there"
    if mode is None:
        there.mkdir()
    else:
        there.write_text("#!/bin/sh")
        there.chmod(mode)
    told = tailfold("run", "--", str(there), home=tmp_path)
    assert (told.returncode, told.stderr) == (126, f"tailfold: cannot run: {there}\n")


def test_a_file_that_is_no_program_is_126(free_port: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("neither a program nor a script")
    script.chmod(0o755)
    told = tailfold("run", "--port", free_port, "--", str(script), home=tmp_path)
    assert told.returncode == 126
    assert "cannot run" in told.stderr


def test_flags_of_the_command_are_not_ours(free_port: str, tmp_path: Path) -> None:
    told = tailfold("run", "--port", free_port, "echo", "--port", "--help", home=tmp_path)
    assert (told.stdout, told.stderr) == ("--port --help\n", "")


SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = """
import signal, sys, time
signal.signal(signal.{name}, lambda *_: sys.exit(5))
print('ready', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_reaches_the_command_which_may_do_as_it_likes(
    name: str, free_port: str, tmp_path: Path
) -> None:
    script = STUBBORN.format(name=name)
    command = (*TAILFOLD, "run", "--port", free_port, "--", sys.executable, "-c", script)
    with started(*command, home=tmp_path) as run:
        assert run.line() == "ready"
        assert run.end(getattr(signal, name)) == 5


def test_a_command_that_ends_by_a_signal_of_ours_is_told_so(free_port: str, tmp_path: Path) -> None:
    command = (*TAILFOLD, "run", "--port", free_port, "--", sys.executable, "-c", SLEEPER)
    with started(*command, home=tmp_path) as run:
        assert run.line() == "ready"
        assert run.end() == 128 + signal.SIGTERM


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
def test_a_proxy_of_its_own_does_not_outlive_a_run_that_was_killed(free_port: str, tmp_path: Path) -> None:
    script = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"
    command = (*TAILFOLD, "run", "--port", free_port, "--", sys.executable, "-c", script)
    with started(*command, home=tmp_path) as run:
        assert int(run.line()) == run.pid
        proxies = [
            pid for pid in children_of(run.pid) if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(proxies) == 1
        command_pid = next(pid for pid in children_of(run.pid) if pid not in proxies)
        run.end(signal.SIGKILL)
        eventually(lambda: not is_alive(proxies[0]))
        os.kill(command_pid, signal.SIGKILL)


TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
state = termios.tcgetattr(0)
state[3] |= termios.NOFLSH  # or else Ctrl-C throws away what is being printed
termios.tcsetattr(0, termios.TCSANOW, state)
os.execv(sys.argv[1], sys.argv[1:])
"""
COUNTING = """
import os, signal, time
seen = []
signal.signal(signal.SIGINT, lambda *_: (seen.append(1), os.write(1, b'interrupted')))
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'times %d' % len(seen)), os._exit(0)))
os.write(1, b'ready')
time.sleep(600)
"""


def test_ctrl_c_in_a_terminal_reaches_the_command(free_port: str, tmp_path: Path) -> None:
    with in_terminal(COUNTING, free_port, tmp_path) as (process, terminal):
        _read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        _read_until(terminal, b"interrupted")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_what_the_terminal_sends_to_all_is_not_sent_again(free_port: str, tmp_path: Path) -> None:
    with in_terminal(COUNTING, free_port, tmp_path) as (process, terminal):
        _read_until(terminal, b"ready")
        process.send_signal(signal.SIGINT)  # in the foreground, where the terminal would have told both
        process.send_signal(signal.SIGTERM)  # handled after it, and handed on
        _read_until(terminal, b"times 0")
        assert process.wait(PATIENCE) == 0


@contextmanager
def in_terminal(script: str, port: str, home: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *TAILFOLD, "run", "--port", port, sys.executable, "-c", script],
        env=environment(home),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(terminal: int, expected: bytes) -> None:
    told = b""
    while expected not in told:
        assert select.select([terminal], [], [], PATIENCE)[0], f"no {expected!r} after {told!r}"
        try:
            told += os.read(terminal, 4096)
        except OSError:
            raise AssertionError(f"ended without {expected!r}, after {told!r}") from None
