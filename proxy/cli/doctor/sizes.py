"""Bytes, for people."""

from __future__ import annotations

_UNITS = ("B", "KB", "MB", "GB", "TB")


def written(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.{0 if unit == 0 else 1}f} {_UNITS[unit]}"
