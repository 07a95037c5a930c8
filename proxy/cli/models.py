"""`tailfold models`: what is known of models, and who has said so."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import click

from proxy.cli.options import takes_settings
from proxy.cli.tables import aligned
from proxy.settings import load
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.model_map import ModelMap, said_by_the_user
from proxy.windows.resolve import DEFAULT_WINDOW

_FIELDS = [field.name for field in fields(ModelFacts)]
_COLUMNS = ("window", "max_output", "encoding", "threshold", "retain_tokens", "summary_model")


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@takes_settings()
def models(flags: dict[str, Any], name: str | None, as_json: bool) -> None:
    """Show what is known of models by their names, and where each number comes from.

    Without NAME: your own entries and those of the shipped map. With NAME: everything known of that model,
    as a request for it would find it before its upstream has said anything. A name may be dated, fine-tuned
    or carry its provider.

    \b
    Examples:
      tailfold models
      tailfold models openai/gpt-4o-2024-08-06
      tailfold models my-model --json --config tailfold.yaml
    """
    known = ModelMap(said_by_the_user(load(flags, os.environ).settings.models))
    known.load()
    if name is not None:
        found = _with_default(known.look_up(name))
        click.echo(json.dumps({"model": name, **_as_json(found)}, indent=2) if as_json else _one(name, found))
        return
    everything = {each: known.look_up(each) for each in known.names()}
    if as_json:
        click.echo(json.dumps({each: _as_json(found) for each, found in everything.items()}, indent=2))
    else:
        click.echo(_table(everything))


def _with_default(found: KnownModel) -> KnownModel:
    if found.facts.window is not None:
        return found
    facts = ModelFacts(**{**asdict(found.facts), "window": DEFAULT_WINDOW})
    return KnownModel(facts, {**found.origins, "window": Origin.DEFAULT})


def _as_json(found: KnownModel) -> dict[str, Any]:
    facts = asdict(found.facts)
    return {
        name: {"value": facts[name], "origin": found.origins[name].value}
        for name in _FIELDS
        if facts[name] is not None
    }


def _one(name: str, found: KnownModel) -> str:
    rows = [(key, _written(each["value"]), each["origin"]) for key, each in _as_json(found).items()]
    note = (
        ["", "Nobody has said how large its window is: nothing is folded until its upstream says so."]
        if found.origins["window"] is Origin.DEFAULT
        else []
    )
    return "\n".join([name, *aligned(rows, indent="  "), *note])


def _table(everything: Mapping[str, KnownModel]) -> str:
    rows: list[tuple[str, ...]] = [("model", *_COLUMNS, "window from")]
    for name, found in everything.items():
        values = [_written(getattr(found.facts, column)) for column in _COLUMNS]
        rows.append((name, *values, found.origins.get("window", "")))
    return "\n".join(aligned(rows))


def _written(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
