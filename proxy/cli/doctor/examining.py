"""All checks at once, each for itself: what goes wrong in one is a finding, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import chain

from proxy.cli.doctor import encryption, listening, models, store, upstream, vocabularies
from proxy.cli.doctor.finding import Finding, fails
from proxy.cli.doctor.upstream import Key
from proxy.settings import Settings
from proxy.tasks import Tasks

# For a family of checks, each question of which has a shorter limit of its own.
_LIMIT = 10.0
_READING = 4.0


async def examined(settings: Settings, key: Key, names: Sequence[str]) -> list[Finding]:
    tasks = Tasks()
    try:
        families = await asyncio.gather(
            settled("port", listening.check(settings)),
            settled("upstream", upstream.check(settings, key, tasks)),
            settled("store", store.check(settings, tasks)),
            settled("encryption", encryption.check(settings, tasks)),
            settled("models", models.check(settings, names, key, tasks)),
        )
    finally:
        await tasks.close(timeout=0)
    # By itself, since it works hard: beside it, a store would look slow.
    read = await settled("vocabularies", vocabularies.check(), limit=_READING)
    return [*chain.from_iterable(families), *read]


async def settled(
    name: str, check: Awaitable[Sequence[Finding]], *, limit: float = _LIMIT
) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(limit):
            return await check
    except TimeoutError:
        hint = "something on the way hangs: a name server, a disk or a network that drops packets"
        return [fails(name, f"not finished within {limit:g} s", hint)]
    # An edge: the one who asks what is wrong gets an answer from all other checks. The text of an error may
    # quote a key, so that its type alone is told.
    except Exception as error:  # noqa: BLE001
        hint = "this is a fault of the check itself: please report it"
        return [fails(name, f"broke off with {type(error).__name__}", hint)]
