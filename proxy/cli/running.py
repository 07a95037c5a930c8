"""`tailfold run -- CMD`: a command whose OpenAI client is pointed at Tailfold."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import click

from proxy.cli import addresses
from proxy.cli.client_environment import CLIENT_URL_VARIABLES, client_environment
from proxy.cli.commands import CANNOT_RUN, COMMAND_NOT_FOUND, run_command
from proxy.cli.options import takes_settings
from proxy.cli.processes import ProxyFailed, ProxyProcess
from proxy.cli.sealed_store import refuse_without_its_keys
from proxy.config_files import single_layer
from proxy.settings import Loaded, Settings, load, state_dir

# What a proxy of our own decides for itself, whatever is configured for a proxy that others use too.
_OWN_LISTENER = {"host": "127.0.0.1", "port": 0, "workers": 1}
# These do not change what happens to a request, so a proxy that is already running will do.
_ABOUT_THE_LISTENER = ("host", "port", "workers", "admin", "metrics", "log")

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_LARGEST_LOG = 1024 * 1024


@click.command(context_settings={"allow_interspersed_args": False})
@takes_settings("host", "port", "upstream", "store", "mode")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(flags: dict[str, Any], command: tuple[str, ...]) -> None:
    """Run a command with its OpenAI client pointed at Tailfold.

    Takes the Tailfold that already listens on the configured address (--host, --port), or else starts
    one on a free port for as long as the command runs. An upstream, a store, a mode or a
    configuration file of its own always means a Tailfold of its own, and so does an OPENAI_BASE_URL
    that points elsewhere: that becomes the upstream.

    The command gets OPENAI_BASE_URL, OPENAI_API_BASE and, for clients that know it,
    OPENAI_CUSTOM_HEADERS with a conversation id.

    \b
    Examples:
      tailfold run -- aider
      tailfold run --upstream http://localhost:11434/v1 -- python agent.py
      OPENAI_BASE_URL=https://openrouter.ai/api/v1 tailfold run -- aider
    """
    if shutil.which(command[0]) is None:
        _refuse_command(command[0])
    choice = _choice(flags, os.environ)
    with _base_url(choice) as base_url:
        environ = client_environment(os.environ, base_url, f"run-{secrets.token_hex(8)}")
        code = run_command(command, environ)
    sys.exit(code)


@dataclass(frozen=True)
class Found:
    """A running Tailfold to use."""

    url: str


@dataclass(frozen=True)
class Own:
    """A Tailfold to start, with these settings."""

    settings: Settings


def _choice(flags: Mapping[str, object], environ: Mapping[str, str]) -> Found | Own:
    variable = next((name for name in CLIENT_URL_VARIABLES if environ.get(name)), None)
    client_url = environ[variable] if variable else None
    fallback = single_layer("upstream", client_url, f"environment {variable}") if client_url else None
    own = load({**flags, **_OWN_LISTENER}, environ, fallback=fallback)
    if _is_special(own, except_for=f"environment {variable}"):
        return Own(own.settings)
    shared = load(flags, environ).settings
    if client_url and not shared.is_own_address(own.settings.upstream):
        return Own(own.settings)
    host = addresses.local_host(shared.host)
    if is_tailfold(host, shared.port):
        return Found(addresses.url(host, shared.port))
    if client_url and not _anybody_listens(host, shared.port):
        # Going on with the default upstream would send to OpenAI what was meant for another server.
        raise click.ClickException(
            f"{variable} is {client_url}, where nothing listens; start that server, unset {variable}, "
            "or say --upstream"
        )
    return Own(own.settings)


def _is_special(own: Loaded, *, except_for: str) -> bool:
    """Whether somebody asked for something that a running Tailfold may not be doing."""
    return own.file is not None or any(
        origin not in ("default", except_for)
        for key, origin in own.origins.items()
        if key.partition(".")[0] not in _ABOUT_THE_LISTENER
    )


def _refuse_command(name: str) -> NoReturn:
    """As a shell does: what is there and cannot be run is told from what is not there."""
    there = os.sep in name and os.path.exists(name)
    click.echo(f"tailfold: {'cannot run' if there else 'command not found'}: {name}", err=True)
    sys.exit(CANNOT_RUN if there else COMMAND_NOT_FOUND)


def is_tailfold(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        answer = json.loads(connection.getresponse().read(64 * 1024))
        return isinstance(answer, dict) and (answer.get("name"), answer.get("status")) == ("tailfold", "ok")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def _anybody_listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


@contextmanager
def _base_url(choice: Found | Own) -> Iterator[str]:
    match choice:
        case Found(url):
            yield f"{url}/v1"
        case Own(settings):
            refuse_without_its_keys(settings)
            with _own_proxy(settings) as url:
                yield f"{url}/v1"


@contextmanager
def _own_proxy(settings: Settings) -> Iterator[str]:
    """The terminal belongs to the command, so the proxy writes its log to a file."""
    with _log_file() as log:
        proxy = ProxyProcess(settings, os.environ, output=log)
        try:
            port = asyncio.run(asyncio.wait_for(proxy.listening(), _START_SECONDS))
            yield addresses.url(settings.host, port)
        except (ProxyFailed, TimeoutError) as failure:
            reason = str(failure) or f"not ready after {_START_SECONDS:g} s"
            raise click.ClickException(f"the proxy did not start: {reason}; see {log.name}") from None
        finally:
            proxy.stop(_STOP_SECONDS)


def _log_file() -> IO[bytes]:
    path = state_dir() / "run.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        too_large = path.exists() and path.stat().st_size > _LARGEST_LOG
        return open(path, "wb" if too_large else "ab")
    except OSError:
        return open(os.devnull, "wb")  # a log that cannot be kept is no reason not to run
