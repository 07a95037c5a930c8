"""The six lines that `tailfold serve` prints once it listens."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

import click

from proxy.cli import addresses
from proxy.settings import Settings, masked


def lines(settings: Settings, port: int, *, colour: bool = False) -> list[str]:
    local = addresses.url(addresses.local_host(settings.host), port)
    facts = {
        "listening at": addresses.url(settings.host, port),
        "upstream": settings.upstream,
        "store": masked(settings.store_url),
        "mode": settings.mode,
        "page": f"{local}/ui/",
    }
    width = max(map(len, facts))
    told = [f"{_label(name.ljust(width), colour)}  {fact}" for name, fact in facts.items()]
    # Bare, so that the whole line can be copied into a shell.
    return [*told, f"export OPENAI_BASE_URL={local}/v1"]


def show(settings: Settings, port: int) -> None:
    try:
        click.echo("\n".join(lines(settings, port, colour=wants_colour(sys.stdout, os.environ))), color=True)
    except OSError:
        # Whoever read our output has left (`tailfold serve | head -1`); that is no reason to stop serving,
        # and what is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _label(text: str, colour: bool) -> str:
    return click.style(text, dim=True) if colour else text
