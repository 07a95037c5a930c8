"""What is measured: how each proxy is started in front of the upstream."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Child, free_port, start_until_it_answers

DIRECT, BARE, NGINX, TAILFOLD = "direct", "bare", "nginx", "tailfold"

# (own port, the upstream's port, a folder for its files) -> the command that serves
Command = Callable[[int, int, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Running:
    """A subject that answers: `direct` is the upstream itself."""

    name: str
    port: int
    child: Child
    start_seconds: float
    resident_at_start: int


def start(name: str, command: Command, upstream_port: int, folder: Path) -> Running:
    port = free_port()
    child, seconds = start_until_it_answers(name, command(port, upstream_port, folder), port, folder)
    return Running(name, port, child, seconds, child.resident_bytes())


def proxies() -> dict[str, Command]:
    """All that can be started on this machine, in the order of the table."""
    commands: dict[str, Command] = {BARE: _bare, TAILFOLD: _tailfold}
    if nginx_binary():
        commands = {BARE: _bare, NGINX: _nginx, TAILFOLD: _tailfold}
    return commands


def upstream(port: int, _upstream_port: int, _folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.upstream", str(port)]


def nginx_binary() -> str | None:
    # Where distributions put it; not always on the path of a user who is not root.
    return shutil.which("nginx", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")


def _bare(port: int, upstream_port: int, _folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.bare", str(port), f"http://127.0.0.1:{upstream_port}"]


def _tailfold(port: int, upstream_port: int, _folder: Path) -> list[str]:
    # Far from full: what is measured is the way of a request that is counted, told apart and not folded.
    window = 'TAILFOLD_MODELS={"gpt-4o": {"window": 1000000}}'
    serve = [
        "env",
        window,
        sys.executable,
        "-m",
        "proxy",
        "serve",
        "--port",
        str(port),
        "--store",
        "memory://",
    ]
    return [*serve, "--upstream", f"http://127.0.0.1:{upstream_port}/v1"]


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
