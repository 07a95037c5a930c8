"""Facts of models as they are written down: `models:` with an entry per name or pattern, checked strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from proxy.config_files import SettingsError, read
from proxy.counting import vocabularies
from proxy.counting.images import RULES
from proxy.settings.sections import Model, Strategy
from proxy.settings.values import retained
from proxy.windows.facts import ModelFacts

_SECTION = "models"


def facts_in(file: Path) -> dict[str, ModelFacts]:
    """By name or pattern, in the file's order. All that is wrong with it is told at once."""
    found: dict[str, ModelFacts] = {}
    problems: list[str] = []
    for name, entry in _section(file).items():
        try:
            found[str(name)] = facts_from(entry, f"file {file}: {_SECTION}.{name}")
        except SettingsError as wrong:
            problems += wrong.problems
    if problems:
        raise SettingsError(problems)
    return found


def said_by_the_user(models: Mapping[str, Model]) -> dict[str, ModelFacts]:
    """The same from the settings, which have been checked where they were read."""
    return {name: ModelFacts(**model.model_dump()) for name, model in models.items()}


def _section(file: Path) -> Mapping[object, Any]:
    keys = read(file, {_SECTION})
    if unknown := keys.keys() - {_SECTION}:
        raise SettingsError([f"file {file}: {', '.join(sorted(unknown))}: only {_SECTION} may stand here"])
    section = keys[_SECTION].value if keys else {}
    if not isinstance(section, Mapping):
        raise SettingsError([f"file {file}: {_SECTION}: should be a mapping of names to facts"])
    return section


def facts_from(entry: Mapping[str, Any], place: str) -> ModelFacts:
    """A misspelt key would be a fact that silently does not count. `place` says where the entry stands."""
    if not isinstance(entry, Mapping):
        raise SettingsError([f"{place}: should be a mapping of facts, not {entry!r}"])
    problems = [problem for key, value in entry.items() if (problem := _problem(key, value))]
    if "excludes_answer" in entry and "window" not in entry:
        problems.append("excludes_answer: says what is in a window, give the window with it")
    if problems:
        raise SettingsError([f"{place}: {problem}" for problem in problems])
    return ModelFacts(**entry)


def _problem(key: str, value: object) -> str | None:
    if key not in _MAY_BE:
        return f"{key}: unknown; known are {', '.join(_MAY_BE)}"
    fits, described = _MAY_BE[key]
    return None if fits(value) else f"{key}: should be {described}, not {value!r}"


def _is_tokens(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_factor(value: object) -> bool:
    return _is_number(value, above=0.1, up_to=10)


def _is_share(value: object) -> bool:
    return _is_number(value, above=0, up_to=1)


def _is_number(value: object, *, above: float, up_to: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= up_to


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_vocabulary(value: object) -> bool:
    return isinstance(value, str) and vocabularies.known(value) == value


def _is_image_rule(value: object) -> bool:
    return isinstance(value, str) and value in RULES


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_retained(value: object) -> bool:
    try:
        return retained(value) == value
    except ValueError:
        return False


def _is_strategy(value: object) -> bool:
    return value in get_args(Strategy)


_TOKENS = (_is_tokens, "a whole number above 0")
_MAY_BE: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "window": _TOKENS,
    "excludes_answer": (_is_truth, "true or false"),
    "max_output": _TOKENS,
    "encoding": (_is_vocabulary, "a known vocabulary such as o200k_base or cl100k_base"),
    "images": (_is_image_rule, f"one of {', '.join(RULES)}"),
    "factor": (_is_factor, "a number above 0.1 and up to 10"),
    "tool_prompt": _TOKENS,
    "threshold": (_is_share, "a share above 0 and up to 1"),
    "retain_tokens": (_is_retained, "a whole number above 0, or a share of the room such as 10%"),
    "strategy": (_is_strategy, f"one of {', '.join(get_args(Strategy))}"),
    "summary_model": (_is_name, "a model's name"),
}
