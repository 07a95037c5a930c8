"""`tailfold doctor` as it is called: its exit codes, its output, and what it never shows."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from proxy.simulator import Simulator, SimulatorConfig
from tests.cli.command import PATIENCE, TAILFOLD, environment, serving, tailfold
from tests.cli.upstream import Upstream, listening_upstream
from tests.store.packages import install_example
from tests.store.servers import server


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with listening_upstream() as one:
        yield one


def examined(
    upstream: str, *flags: str, home: Path, env: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    return tailfold("doctor", "--upstream", upstream, "--port", "0", *flags, home=home, env=env)


def told(done: CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What is said as JSON, which is always of the same shape."""
    said = json.loads(done.stdout)
    assert said.keys() == {"healthy", "checks"}
    assert said["healthy"] is (done.returncode == 0)
    for check in said["checks"]:
        assert check.keys() == {"name", "verdict", "found", "hint"}
        assert check["verdict"] in ("pass", "warn", "fail")
        assert check["found"]
        assert (check["hint"] is None) == (check["verdict"] == "pass")
    assert said["healthy"] is not any(check["verdict"] == "fail" for check in said["checks"])
    return {check["name"]: check for check in said["checks"]}


def test_without_a_failure_the_exit_code_is_0_and_nothing_is_left_behind(
    tmp_path: Path, upstream: Upstream
) -> None:
    done = examined(upstream.url, home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pass  port ")
    assert lines[-1].endswith(" 0 failed")
    assert os.listdir(tmp_path) == []
    assert {request.path for request in upstream.seen} == {"/v1/models"}


def test_warnings_are_no_failure(tmp_path: Path, upstream: Upstream) -> None:
    done = examined(upstream.url, "--store", "memory://", "--model", "my-model", home=tmp_path)
    assert done.returncode == 0
    assert "warn  store" in done.stdout
    assert "warn  model my-model" in done.stdout


def test_a_failure_makes_it_1(tmp_path: Path, upstream: Upstream) -> None:
    done = examined(upstream.url, "--store", "sqlite:////proc/1/state.db", home=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "fail  store" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" 1 failed")


def test_wrong_settings_make_it_2(tmp_path: Path) -> None:
    done = tailfold("doctor", "--store", "redis://host", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("secret: ")


def test_the_same_is_said_as_json(tmp_path: Path, upstream: Upstream) -> None:
    plain = examined(upstream.url, "--store", "memory://", home=tmp_path)
    checks = told(examined(upstream.url, "--store", "memory://", "--json", home=tmp_path))
    names = [line[6:].partition("  ")[0] for line in plain.stdout.splitlines() if line[:4].isalpha()]
    assert [*checks] == names


def test_a_file_and_the_environment_count_as_they_do_for_serve(tmp_path: Path, upstream: Upstream) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"upstream: {upstream.url}\nmodels: {{my-model: {{window: 9000}}}}\n")
    env = {"TAILFOLD_CONFIG": str(file), "TAILFOLD_PORT": "0", "TAILFOLD_STORE": "memory://"}
    checks = told(tailfold("doctor", "--json", home=tmp_path, env=env))
    assert "9,000" in checks["model my-model"]["found"]
    assert checks["store"]["verdict"] == "warn"


def test_a_port_that_is_taken_fails_unless_a_tailfold_has_it(tmp_path: Path, upstream: Upstream) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = examined(upstream.url, "--port", str(port), "--json", home=tmp_path)
    assert told(taken)["port"]["verdict"] == "fail"
    with serving("--upstream", upstream.url, home=tmp_path) as running:
        found = examined(upstream.url, "--port", running.port, "--json", home=tmp_path)
    assert told(found)["port"]["verdict"] == "warn"
    assert found.returncode == 0


async def test_the_key_of_the_environment_is_tried_and_never_shown(tmp_path: Path) -> None:
    async with Simulator(SimulatorConfig(api_key="sk-r1ght")) as simulator:
        for key, verdict in (("sk-r1ght", "pass"), ("sk-wr0ng", "fail")):
            done = await asyncio.to_thread(
                examined, simulator.base_url, "--json", home=tmp_path, env={"OPENAI_API_KEY": key}
            )
            assert told(done)["key"]["verdict"] == verdict
            assert key not in done.stdout + done.stderr
            assert simulator.requests[-1].credential in ("", key)


def test_a_store_that_is_frozen_is_told_and_no_password_is(tmp_path: Path, upstream: Upstream) -> None:
    with server() as valkey:
        valkey.client.config_set("requirepass", "p4ss")
        url = valkey.url.replace("//", "//:p4ss@")
        env = {"TAILFOLD_STORE": url, "TAILFOLD_SECRET": "s3cret" * 8}
        well = examined(upstream.url, "--json", home=tmp_path, env=env)
        valkey.freeze()
        ill = examined(upstream.url, "--json", home=tmp_path, env=env)
        valkey.thaw()
    assert told(well)["store"]["verdict"] == "pass"
    assert told(ill)["store"]["verdict"] == "fail"
    for output in (well.stdout, well.stderr, ill.stdout, ill.stderr):
        assert "p4ss" not in output
        assert "s3cret" not in output


def test_a_store_of_another_package_is_tried_too(tmp_path: Path, upstream: Upstream) -> None:
    site, state = tmp_path / "site", tmp_path / "state"
    site.mkdir()
    install_example(site)
    done = examined(
        upstream.url, "--store", f"folder://{state}", "--json", home=tmp_path, env={"PYTHONPATH": str(site)}
    )
    assert told(done)["store"]["verdict"] == "pass"
    assert [path.name for path in state.rglob("*") if path.is_file()] == ["lock"]


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_there_is_colour_only_where_somebody_looks(
    tmp_path: Path, upstream: Upstream, env: dict[str, str], coloured: bool
) -> None:
    assert "\x1b" not in examined(upstream.url, home=tmp_path).stdout
    shown, terminal = pty.openpty()
    command = [*TAILFOLD, "doctor", "--upstream", upstream.url, "--port", "0"]
    subprocess.run(command, env=environment(tmp_path, env), stdout=terminal, timeout=PATIENCE, check=True)
    assert (b"\x1b[32mpass\x1b[0m  port" in os.read(shown, 4096)) is coloured
    os.close(terminal)
    os.close(shown)


def test_an_upstream_that_is_silent_holds_it_up_for_its_time_limit_only(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        done = examined(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", "--json", home=tmp_path)
    assert told(done)["upstream"]["verdict"] == "fail"
    assert "5 s" in told(done)["upstream"]["found"]


def test_a_program_that_drips_at_the_port_holds_it_up_for_a_time_limit_only(
    tmp_path: Path, upstream: Upstream
) -> None:
    gone = threading.Event()

    def drip(other: socket.socket) -> None:
        connection, _ = other.accept()
        with connection:
            while not gone.wait(0.2):
                connection.send(b"x")

    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=drip, args=(other,))
        thread.start()
        done = examined(upstream.url, "--port", str(other.getsockname()[1]), "--json", home=tmp_path)
        gone.set()
        thread.join()
    assert told(done)["port"]["verdict"] == "fail"
