"""`tailfold doctor`: whether `tailfold serve` would have what it needs, with the same settings."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from proxy.cli.banner import wants_colour
from proxy.cli.options import takes_settings
from proxy.settings import Settings, load

if TYPE_CHECKING:
    from proxy.cli.doctor.finding import Finding


@click.command()
@click.option(
    "--model", "names", multiple=True, metavar="NAME", help="A model whose window is looked up; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@takes_settings("host", "port", "upstream", "store", "workers", "mode", "log.level", "log.format")
def doctor(flags: dict[str, Any], names: tuple[str, ...], as_json: bool) -> None:
    """Check what `tailfold serve` needs, with the very same settings.

    Port, upstream, key, store, encryption, vocabularies, models and clocks: one line for each, and what to
    do where something is not as it should be. The key that is tried is the one in OPENAI_API_KEY. No model
    is asked anything, nothing stays in the store, and it takes 15 seconds at the most.

    The exit code is 0 when nothing failed, warnings or not, and 1 when something did.

    \b
    Examples:
      tailfold doctor
      tailfold doctor --store redis://127.0.0.1:6379/0 --model my-model
      tailfold doctor --json --config tailfold.yaml
    """
    settings = load(flags, os.environ).settings
    _leave(_shown(_findings(settings, names), as_json))


def _findings(settings: Settings, names: Sequence[str]) -> list[Finding]:
    from proxy import logs
    from proxy.cli.doctor.examining import examined  # brings along most of the server
    from proxy.cli.doctor.upstream import Key

    # What rooms log in such a case is what the findings say in other words.
    logs.configure("error", settings.log.format)
    # Not asyncio.run: it would wait for the threads, one of which may be with a name server that is silent.
    return asyncio.new_event_loop().run_until_complete(examined(settings, Key.of(os.environ), names))


def _shown(findings: Sequence[Finding], as_json: bool) -> int:
    from proxy.cli.doctor import display
    from proxy.cli.doctor.finding import any_fails

    failed = any_fails(findings)
    if as_json:
        click.echo(display.as_json(findings, healthy=not failed))
    else:
        colour = wants_colour(sys.stdout, os.environ)
        click.echo("\n".join(display.lines(findings, colour=colour)), color=colour)
    return 1 if failed else 0


def _leave(code: int) -> NoReturn:
    """Past the threads, for which a usual exit would wait too."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
