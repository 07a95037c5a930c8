"""A store that was encrypted is not gone on with in clear because a variable was lost."""

from __future__ import annotations

import asyncio

from proxy.config_files import SettingsError, variable
from proxy.ports import StoreUnavailable
from proxy.settings import Settings, masked


def refuse_without_its_keys(settings: Settings) -> None:
    """Before anything is written. A store that cannot be asked now is looked at again when it can be."""
    if settings.encryption.by_id or not asyncio.run(_is_sealed(settings.store_url)):
        return
    where, name = masked(settings.store_url), variable("encryption.keys")
    raise SettingsError(
        [
            f"encryption.keys: not set, but {where} is encrypted, and what is stored from now on would be in "
            f"clear beside it: set the variable {name} to its keys. To go on in clear take another store, or "
            "clear this one out: tailfold store purge --all"
        ]
    )


async def _is_sealed(url: str) -> bool:
    from proxy.store import is_sealed  # what a store needs takes a while to import
    from proxy.tasks import Tasks

    tasks = Tasks()
    try:
        return await is_sealed(url, tasks)
    except StoreUnavailable:
        return False
    finally:
        await tasks.close(timeout=0)
