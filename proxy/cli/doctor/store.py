"""Does the store take values, keep them and give them back, fast enough for requests that wait?"""

from __future__ import annotations

from proxy.cli.doctor import round_trip
from proxy.cli.doctor.finding import Finding, warns
from proxy.settings import Settings
from proxy.tasks import Tasks


async def check(settings: Settings, tasks: Tasks) -> list[Finding]:
    scheme = settings.store_url.partition("://")[0]
    if scheme == "memory":
        hint = "fine for a trial; without the setting store, an SQLite file is used"
        return [
            warns(round_trip.NAME, "memory://: nothing outlives the process, workers share nothing", hint)
        ]
    if scheme == "sqlite":
        from proxy.cli.doctor import sqlite_store

        return await sqlite_store.check(settings, tasks)
    if settings.is_shared:
        from proxy.cli.doctor import redis_store  # brings along its library

        return await redis_store.check(settings, tasks)
    return [await round_trip.check(settings, tasks)]
