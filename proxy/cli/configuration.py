"""`tailfold check-config` and `tailfold config`: what is set, from where, and what could be."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from proxy.cli import reference
from proxy.cli.options import takes_settings
from proxy.settings import Loaded, load, printable

_SHOWN_FLAGS = ("host", "port", "upstream", "store", "workers", "mode", "log.level", "log.format")


@click.command("check-config")
@takes_settings()
def check_config(flags: dict[str, Any]) -> None:
    """Check the configuration file and the environment, and say what is wrong.

    \b
    Example:
      tailfold check-config --config tailfold.yaml
    """
    loaded = load(flags, os.environ)
    click.echo(f"ok: {loaded.file or 'no configuration file'}")


@click.group()
def config() -> None:
    """Show settings, their origins, their defaults and their schema."""


@config.command()
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@takes_settings(*_SHOWN_FLAGS)
def show(flags: dict[str, Any], origin: bool, as_json: bool) -> None:
    """Show the settings in effect; secrets are masked.

    Takes the same flags as `tailfold serve`.

    \b
    Example:
      tailfold config show --origin --config tailfold.yaml
    """
    loaded = load(flags, os.environ)
    click.echo(_json(loaded, origin) if as_json else _lines(loaded, origin))


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(reference.json_schema(), nl=False)


@config.command()
def default() -> None:
    """Print a configuration file with every setting, its default and its meaning.

    \b
    Example:
      tailfold config default > tailfold.yaml
    """
    click.echo(reference.default_yaml(), nl=False)


@config.command(hidden=True)
def table() -> None:
    """Print the table in docs/settings.md."""
    click.echo(reference.table(), nl=False)


def _json(loaded: Loaded, origin: bool) -> str:
    values = printable(loaded.settings)
    if origin:
        values = {key: {"value": value, "origin": loaded.origins[key]} for key, value in values.items()}
    return json.dumps(values, indent=2)


def _lines(loaded: Loaded, origin: bool) -> str:
    entries = {
        key: f"{key}: {reference.written(reference.shown(key, value))}"
        for key, value in printable(loaded.settings).items()
    }
    if not origin:
        return "\n".join(entries.values())
    width = max(map(len, entries.values()))
    return "\n".join(f"{entry:<{width}}  # {loaded.origins[key]}" for key, entry in entries.items())
