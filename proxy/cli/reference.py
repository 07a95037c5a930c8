"""The settings model told as YAML, as a JSON Schema and as a table, so that none of them can go stale."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import yaml

from proxy.config_files import variable
from proxy.settings import FIELDS, SECTIONS, Settings, is_size, values_of

_UNITS = ("GiB", "MiB", "KiB")
_HEADER = (
    "# yaml-language-server: $schema=tailfold.schema.json\n"
    "# Every setting of Tailfold with its default. A file needs only what differs from it."
)


def default_yaml() -> str:
    """A complete configuration file: every setting with its default, and what it means."""
    top_level = [_explained(key) for key in FIELDS if "." not in key]
    return "\n\n".join([_HEADER, *top_level, *map(_section, SECTIONS)]) + "\n"


def json_schema() -> str:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
        "title": "Tailfold's configuration file",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def table() -> str:
    """All settings as a Markdown table."""
    defaults = values_of(Settings())
    rows = ["| Key | Default | Variable | Meaning |", "|---|---|---|---|"]
    for key, field in FIELDS.items():
        default = written(shown(key, defaults[key]))
        rows.append(f"| `{key}` | `{default}` | `{variable(key)}` | {field.description} |")
    return "\n".join(rows) + "\n"


def shown(key: str, value: Any) -> Any:
    """A value as people write it: 128MiB, 5 rather than 5.0, a list rather than a tuple."""
    if is_size(key):
        return _size(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value


def written(value: Any) -> str:
    """A value in YAML, on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _size(count: int) -> str | int:
    for power, unit in zip((3, 2, 1), _UNITS, strict=True):
        if count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return count


def _section(name: str) -> str:
    members = [_explained(key, "  ") for key in FIELDS if key.startswith(f"{name}.")]
    return "\n".join([_comment(SECTIONS[name].description), f"{name}:", *members])


def _explained(key: str, indent: str = "") -> str:
    default = written(shown(key, values_of(Settings())[key]))
    return f"{_comment(FIELDS[key].description, indent)}\n{indent}{key.rpartition('.')[2]}: {default}"


def _comment(text: str | None, indent: str = "") -> str:
    lines = textwrap.wrap(text or "", 100 - len(indent))
    return "\n".join(f"{indent}# {line}" for line in lines)
