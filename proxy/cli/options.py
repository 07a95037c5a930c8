"""Flags for settings, made from the model: its names, its help texts, its choices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import click

from proxy.config_files import CONFIG_VARIABLE, flag, variable
from proxy.settings import FIELDS

Command = Callable[..., Any]


def takes_settings(*keys: str) -> Callable[[Command], Command]:
    """Give a command a flag for each of these settings, and `flags`: what was given, by dotted key."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(**parameters: Any) -> Any:
            flags = {key: parameters.pop(_parameter(key)) for key in (*keys, "config")}
            return command(flags=flags, **parameters)

        with_options: Command = collected
        for option in reversed([*map(_option, keys), _config_option()]):
            with_options = option(with_options)
        return with_options

    return decorate


def _parameter(key: str) -> str:
    return key.replace(".", "_")


def _option(key: str) -> Callable[[Command], Command]:
    field = FIELDS[key]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else None
    return click.option(
        flag(key),
        _parameter(key),
        # Other values stay text: the model checks them, with one wording for flag, variable and file.
        type=click.Choice(choices) if choices else click.STRING,
        metavar=None if choices else key.upper(),
        help=f"{(field.description or '').replace('`', '')}  [{variable(key)}; default: {_default(key)}]",
    )


def _default(key: str) -> str:
    default = FIELDS[key].default
    return "the user's state folder" if default is None else str(default)


def _config_option() -> Callable[[Command], Command]:
    return click.option(
        "--config",
        metavar="FILE",
        help=f"YAML file with settings; variables and flags have precedence.  [{CONFIG_VARIABLE}]",
    )
