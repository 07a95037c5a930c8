"""Can the address be listened on?"""

from __future__ import annotations

import asyncio

from proxy.cli import addresses
from proxy.cli.addresses import AddressError
from proxy.cli.doctor.finding import Finding, fails, passes, warns
from proxy.cli.running import is_tailfold
from proxy.settings import Settings

_NAME = "port"
_PATIENCE = 5.0


async def check(settings: Settings) -> list[Finding]:
    problem = await asyncio.to_thread(_problem, settings)
    where = addresses.url(settings.host, settings.port)
    if problem is None:
        free = f"any free one of {settings.host}" if settings.port == 0 else f"{where} is free"
        return [passes(_NAME, free)]
    if await _is_tailfold(settings):
        hint = "stop it first, or choose another port: --port"
        return [warns(_NAME, f"a Tailfold runs at {where} already", hint)]
    found, _, hint = problem.partition("; ")
    return [fails(_NAME, found, hint or "give an address of this machine: --host")]


async def _is_tailfold(settings: Settings) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await asyncio.to_thread(is_tailfold, addresses.local_host(settings.host), settings.port)
    except TimeoutError:
        return False


def _problem(settings: Settings) -> str | None:
    """By taking the address in the way in which it will be taken."""
    take = addresses.reserved_socket if settings.workers > 1 else addresses.listening_socket
    try:
        take(settings.host, settings.port).close()
    except AddressError as error:
        return error.message
    return None
