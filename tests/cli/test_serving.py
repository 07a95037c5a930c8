"""`tailfold serve` as its user meets it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.cli import banner
from proxy.cli.addresses import listening_socket, port_of
from proxy.cli.running import is_tailfold
from proxy.settings import MASK, Settings
from tests.cli.command import PATIENCE, TAILFOLD, environment, eventually, serving, tailfold


def test_six_lines_say_where_it_listens_and_what_to_copy() -> None:
    settings = Settings(store="redis://:s3cret@host/0", secret=SecretStr("s" * 32))
    assert banner.lines(settings, 8080) == [
        "listening at  http://127.0.0.1:8080",
        "upstream      https://api.openai.com/v1",
        f"store         redis://:{MASK}@host/0",
        "mode          compress",
        "page          http://127.0.0.1:8080/ui/",
        "export OPENAI_BASE_URL=http://127.0.0.1:8080/v1",
    ]


@pytest.mark.parametrize(
    ("host", "listening", "local"),
    [
        ("0.0.0.0", "http://0.0.0.0:1", "http://127.0.0.1:1"),
        ("::", "http://[::]:1", "http://[::1]:1"),
        ("::1", "http://[::1]:1", "http://[::1]:1"),
    ],
)
def test_what_is_to_be_copied_works_on_this_machine(host: str, listening: str, local: str) -> None:
    settings = Settings.model_validate({"host": host, "admin": {"token": "t"}})
    told = banner.lines(settings, 1)
    assert told[0].endswith(f"  {listening}")
    assert told[4].endswith(f"  {local}/ui/")
    assert told[5] == f"export OPENAI_BASE_URL={local}/v1"


def test_it_serves_and_ends_cleanly_when_told(tmp_path: Path) -> None:
    with serving(home=tmp_path) as proxy:
        assert [line.split("  ")[0].strip() for line in proxy.banner[:5]] == [
            "listening at",
            "upstream",
            "store",
            "mode",
            "page",
        ]
        assert proxy.banner[5] == f"export OPENAI_BASE_URL={proxy.url}/v1"
        assert "\x1b" not in "".join(proxy.banner)
        health = proxy.health()
        assert (health["status"], health["name"]) == ("ok", "tailfold")
        assert proxy.end() == 0
        assert proxy.line() == ""


def test_an_interrupt_ends_it_cleanly_too(tmp_path: Path) -> None:
    with serving(home=tmp_path) as proxy:
        assert proxy.end(signal.SIGINT) == 0


def test_without_configuration_it_is_the_proxy_for_openai_on_port_8080(tmp_path: Path) -> None:
    shown = tailfold("config", "show", home=tmp_path).stdout
    assert "host: 127.0.0.1\nport: 8080\nworkers: 1\nupstream: https://api.openai.com/v1\n" in shown


def test_a_port_in_use_ends_it_with_code_1_and_one_line(tmp_path: Path) -> None:
    with serving(home=tmp_path) as proxy:
        for workers in ("1", "2"):
            told = tailfold("serve", "--port", proxy.port, "--workers", workers, home=tmp_path)
            assert told.returncode == 1
            assert len(told.stderr.splitlines()) == 1
            assert f"port {proxy.port} " in told.stderr
            assert "--port 0" in told.stderr


def test_it_refuses_to_be_open_to_the_network_without_a_token(tmp_path: Path) -> None:
    told = tailfold("serve", "--host", "0.0.0.0", home=tmp_path)
    assert told.returncode == 2
    assert "admin token" in told.stderr


def test_a_reader_that_leaves_does_not_end_it(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as free:
        port = port_of(free)
    reading, writing = os.pipe()
    os.close(reading)  # whatever is printed has nowhere to go
    process = subprocess.Popen(
        [*TAILFOLD, "serve", "--port", str(port)],
        env=environment(tmp_path),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    eventually(lambda: is_tailfold("127.0.0.1", port))
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "BrokenPipeError" not in errors


@pytest.mark.parametrize(
    ("extra", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(extra: dict[str, str], coloured: bool, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TAILFOLD, "serve", "--port", "0"],
        env=environment(tmp_path, {"TERM": "xterm", **extra}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    try:
        told = b""
        while b"export" not in told:
            told += os.read(ours, 4096)
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
        os.close(ours)
    assert (b"\x1b[" in told) == coloured
