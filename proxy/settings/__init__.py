"""Everything that can be set: one frozen model, and where each of its values came from.

A description in it is the only place where a setting is explained: the command line's help,
`config/default.yaml`, the JSON Schema and `docs/settings.md` are made from it.
"""

from __future__ import annotations

from proxy.config_files import SettingsError
from proxy.settings.loading import Loaded, load
from proxy.settings.model import (
    FIELDS,
    MASK,
    SECTIONS,
    Settings,
    is_size,
    masked,
    printable,
    revealed,
    state_dir,
    values_of,
)
from proxy.settings.sections import Admin, Limits, Log, Timeouts, Tls
from proxy.settings.values import is_loopback

__all__ = [
    "FIELDS",
    "MASK",
    "SECTIONS",
    "Admin",
    "Limits",
    "Loaded",
    "Log",
    "Settings",
    "SettingsError",
    "Timeouts",
    "Tls",
    "is_loopback",
    "is_size",
    "load",
    "masked",
    "printable",
    "revealed",
    "state_dir",
    "values_of",
]
