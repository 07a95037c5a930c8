"""What a chat request says of its own folding, in headers that are not forwarded."""

from __future__ import annotations

from typing import get_args

from aiohttp import web

from proxy.errors import BadRequest
from proxy.request import Wishes
from proxy.settings.sections import Strategy
from proxy.settings.values import retained

MODES = ("compress", "observe", "off")
STRATEGIES = get_args(Strategy)

MODE = "X-Tailfold-Mode"
STRATEGY = "X-Tailfold-Strategy"
THRESHOLD = "X-Tailfold-Threshold"
RETAIN_TOKENS = "X-Tailfold-Retain-Tokens"


def wishes_of(request: web.Request, mode: str) -> Wishes:
    """`mode` is that of the settings. Raises BadRequest for what cannot be wished."""
    headers = request.headers
    if not any(name in headers for name in (MODE, STRATEGY, THRESHOLD, RETAIN_TOKENS)):
        return Wishes(mode)
    return Wishes(
        _one_of(MODES, MODE, headers.get(MODE)) or mode,
        _one_of(STRATEGIES, STRATEGY, headers.get(STRATEGY)),
        _share(headers.get(THRESHOLD)),
        _retained(headers.get(RETAIN_TOKENS)),
    )


def _one_of(known: tuple[str, ...], name: str, said: str | None) -> str | None:
    if said is not None and said not in known:
        raise BadRequest(f"{name} must be one of {', '.join(known)}.")
    return said


def _share(said: str | None) -> float | None:
    if said is None:
        return None
    try:
        share = float(said)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadRequest(f"{THRESHOLD} must be a share above 0 and up to 1, such as 0.8.")
    return share


def _retained(said: str | None) -> int | str | None:
    if said is None:
        return None
    try:
        checked = retained(said)
    except ValueError as wrong:
        raise BadRequest(f"{RETAIN_TOKENS} {wrong}.") from None
    assert isinstance(checked, int | str)
    return checked
