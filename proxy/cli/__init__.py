"""The command `tailfold`: one file per family of commands."""

from __future__ import annotations

import click

from proxy import __version__
from proxy.cli.configuration import check_config, config
from proxy.cli.demo import demo
from proxy.cli.doctor import doctor
from proxy.cli.models import models
from proxy.cli.processes import worker
from proxy.cli.running import run
from proxy.cli.serving import serve
from proxy.cli.store import store
from proxy.settings import SettingsError

WRONG_SETTINGS = 2


class _Group(click.Group):
    """Wrong settings end any command in the same way: one problem per line, and no traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            for problem in error.problems:
                click.echo(problem, err=True)
            ctx.exit(WRONG_SETTINGS)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tailfold")
def main() -> None:
    """An OpenAI-compatible proxy that keeps long conversations inside the model's window.

    \b
    Examples:
      tailfold serve                        # http://127.0.0.1:8080/v1 goes to api.openai.com
      tailfold run -- aider                 # a command with its client pointed at Tailfold
      tailfold demo                         # watch it work, without a key or a network
      tailfold doctor                       # is everything there that serve needs?
      tailfold models gpt-4o                # what is known of a model, and who has said so
      tailfold store stats                  # what is kept, and how much of it
      tailfold config default > tailfold.yaml
      tailfold check-config --config tailfold.yaml
    """


for command in (serve, run, demo, doctor, models, store, check_config, config, worker):
    main.add_command(command)
