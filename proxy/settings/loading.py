"""From flags, environment and file to the settings, with a complaint for whatever is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.config_files import (
    Layer,
    SettingsError,
    config_path,
    environment_layer,
    file_layer,
    flag_layer,
)
from proxy.settings.model import FIELDS, PRIVATE, SECTIONS, Clash, Settings
from proxy.settings.sections import Model


@dataclass(frozen=True)
class Loaded:
    """The settings, where each came from by dotted key, and the file that was read."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None = None


def load(flags: Mapping[str, object], environ: Mapping[str, str], *, fallback: Layer | None = None) -> Loaded:
    """Settings from flags, environment and file, in this order of precedence, then from `fallback`.

    Flags are given by dotted key, None meaning not given; the key `config` names the file.
    """
    file = config_path(flags, environ)
    layers = [flag_layer(flags), environment_layer(environ, FIELDS)]
    if file is not None:
        layers.append(file_layer(file, FIELDS, SECTIONS))
    if fallback is not None:
        layers.append(fallback)
    settings, origins = _resolved(layers)
    return Loaded(settings, origins, file)


def _resolved(layers: Sequence[Layer]) -> tuple[Settings, dict[str, str]]:
    problems = [problem for layer in layers for problem in layer.problems]
    winners = {key: layer for layer in reversed(layers) for key in layer.values}
    try:
        settings = Settings.model_validate(_nested({key: winners[key].values[key] for key in winners}))
    except ValidationError as error:
        raise SettingsError(problems + [_told(details, winners) for details in error.errors()]) from None
    if problems:
        raise SettingsError(problems)
    origins = {key: winners[key].origin(key) if key in winners else "default" for key in FIELDS}
    return settings, origins


def _nested(flat: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return nested


def _told(details: ErrorDetails, winners: Mapping[str, Layer]) -> str:
    """One of pydantic's complaints, in terms of the place where the value was written."""
    cause = details.get("ctx", {}).get("error")
    key = cause.key if isinstance(cause, Clash) else _key_at(details["loc"])
    place = winners[key].place(key) if key in winners else key
    if key == "models":
        place = ": ".join([place, *map(str, details["loc"][1:])])
    if details["type"] == "extra_forbidden":
        return f"{place}: unknown; known are {', '.join(Model.model_fields)}"
    message = str(cause) if cause is not None else details["msg"].removeprefix("Input ")
    return f"{place}: {message}{_got(key, details['input'])}"


def _key_at(location: Sequence[int | str]) -> str:
    """The setting an error belongs to; pydantic's location may go on into a list or a union."""
    names = [str(step) for step in location]
    dotted = ".".join(names[:2])
    return dotted if dotted in FIELDS else names[0]


def _got(key: str, value: object) -> str:
    if key in PRIVATE or not isinstance(value, str | int | float | bool):
        return ""
    return f" (got {str(value)[:60]!r})"
