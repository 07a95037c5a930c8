"""`tailfold serve`: in this process, or with several workers."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from proxy.cli import addresses, banner
from proxy.cli.event_loop import serve_on
from proxy.cli.options import takes_settings
from proxy.cli.sealed_store import refuse_without_its_keys
from proxy.settings import Settings, load


@click.command()
@takes_settings("host", "port", "upstream", "store", "workers", "mode", "log.level", "log.format")
def serve(flags: dict[str, Any]) -> None:
    """Run the proxy.

    Without any configuration it listens on http://127.0.0.1:8080 and forwards to
    https://api.openai.com/v1 with the key that the client sends. Every setting can also be given as an
    environment variable or in a YAML file; a flag wins over a variable, a variable over the file.
    The admin token has no flag on purpose, because other users of the machine can see flags: set
    TAILFOLD_ADMIN__TOKEN, or admin.token in the file.

    \b
    Examples:
      tailfold serve
      tailfold serve --port 9000 --upstream https://openrouter.ai/api/v1
      tailfold serve --store redis://localhost:6379/0 --workers 4
      TAILFOLD_ADMIN__TOKEN=... tailfold serve --host 0.0.0.0
      tailfold serve --config tailfold.yaml
    """
    settings = load(flags, os.environ).settings
    refuse_without_its_keys(settings)
    if settings.workers > 1:
        from proxy.cli.workers import serve_with_workers

        sys.exit(serve_with_workers(settings))
    _serve_here(settings)


def _serve_here(settings: Settings) -> None:
    with addresses.listening_socket(settings.host, settings.port) as sock:
        port = addresses.port_of(sock)
        bound = settings.model_copy(update={"port": port})
        serve_on(bound, sock, on_ready=lambda: banner.show(bound, port))
