"""What is measured: how each proxy is started in front of the upstream."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.processes import BenchmarkFailed, Child, free_port, start_until_it_answers

DIRECT, BARE, NGINX, TAILFOLD = "direct", "bare", "nginx", "tailfold"
# Beside tailfold, which is alone and on memory://. Two take turns.
SHARED, PAIR, SHARED_PAIR = "tailfold on Valkey", "two in memory", "two on Valkey"

_IN_MEMORY = "memory://"

# (own port, the upstream's port, a folder for its files) -> the command that serves
Command = Callable[[int, int, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Running:
    """A subject that answers: `direct` is the upstream itself, and some are several servers."""

    name: str
    ports: tuple[int, ...]
    children: tuple[Child, ...]
    start_seconds: float
    resident_at_start: int

    @property
    def port(self) -> int:
        return self.ports[0]

    def family(self) -> list[int]:
        return [pid for child in self.children for pid in child.family()]

    def resident_bytes(self) -> int:
        return sum(child.resident_bytes() for child in self.children)

    def end(self) -> None:
        for child in self.children:
            child.end()

    def failure(self, what: str) -> BenchmarkFailed:
        """Its own, where one of its servers has ended."""
        for child in self.children:
            child.check_alive()
        return self.children[0].failure(what)


def start(name: str, command: Command, upstream_port: int, folder: Path) -> Running:
    port = free_port()
    child, seconds = start_until_it_answers(name, command(port, upstream_port, folder), port, folder)
    return Running(name, (port,), (child,), seconds, child.resident_bytes())


def together(name: str, several: Sequence[Running]) -> Running:
    return Running(
        name,
        tuple(one.port for one in several),
        tuple(child for one in several for child in one.children),
        sum(one.start_seconds for one in several),
        sum(one.resident_at_start for one in several),
    )


def proxies() -> dict[str, Command]:
    """All that can be started on this machine, in the order of the table."""
    commands: dict[str, Command] = {BARE: _bare, TAILFOLD: in_memory()}
    if nginx_binary():
        commands = {BARE: _bare, NGINX: _nginx, TAILFOLD: in_memory()}
    return commands


def upstream(port: int, _upstream_port: int, _folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.upstream", str(port)]


def nginx_binary() -> str | None:
    # Where distributions put it; not always on the path of a user who is not root.
    return shutil.which("nginx", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")


def _bare(port: int, upstream_port: int, _folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.bare", str(port), f"http://127.0.0.1:{upstream_port}"]


def in_memory() -> Command:
    return partial(_tailfold, _IN_MEMORY)


def on_valkey(port: int) -> Command:
    return partial(_tailfold, f"redis://127.0.0.1:{port}/0")


def _tailfold(store: str, port: int, upstream_port: int, _folder: Path) -> list[str]:
    # Far from full: what is measured is the way of a request that is counted, told apart and not folded.
    window = 'TAILFOLD_MODELS={"gpt-4o": {"window": 1000000}}'
    secret = [] if store == _IN_MEMORY else ["TAILFOLD_SECRET=a secret that replicas of the benchmark share"]
    serve = [sys.executable, "-m", "proxy", "serve", "--port", str(port), "--store", store]
    return ["env", window, *secret, *serve, "--upstream", f"http://127.0.0.1:{upstream_port}/v1"]


def _nginx(port: int, upstream_port: int, folder: Path) -> list[str]:
    place = folder / f"nginx-{port}"
    place.mkdir()
    (place / "nginx.conf").write_text(_nginx_configuration(port, upstream_port))
    binary = nginx_binary()
    assert binary
    return [binary, "-p", str(place), "-c", "nginx.conf"]


def _nginx_configuration(port: int, upstream_port: int) -> str:
    # A worker of another user could not write into our folder.
    user = "user root;" if os.geteuid() == 0 else ""
    return f"""
{user}
worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  client_body_buffer_size 64k;
  upstream the_upstream {{
    server 127.0.0.1:{upstream_port};
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://the_upstream;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }}
  }}
}}
"""
