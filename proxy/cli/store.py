"""`tailfold store`: what is kept, taking it elsewhere, and clearing it out."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import click

from proxy.cli.exported_file import written_to
from proxy.cli.options import takes_settings
from proxy.cli.tables import aligned
from proxy.ports import Space, Store, StoreUnavailable
from proxy.settings import Settings, load, masked

if TYPE_CHECKING:
    from proxy.store.entries import Listed
    from proxy.store.keyring import Keyring
    from proxy.store.moving import Moved

T = TypeVar("T")
SecretOf = Literal["settings", "store"]

_PATIENCE = 10.0  # seconds for one question: nobody's request is waiting for it
_SET_THE_KEYS = "the store is encrypted: set encryption.keys to its keys"
# Claims are not told, and of the server's own there is the secret alone.
_KINDS = [space.value for space in Space if space not in (Space.CLAIMS, Space.SERVER)]

_incomplete = click.option(
    "--incomplete", is_flag=True, help="Leaving values out is fine: exit with 0 all the same."
)


@click.group()
def store() -> None:
    """Look at what the store keeps, take it elsewhere, clear it out."""


@store.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@takes_settings("store")
def stats(flags: dict[str, Any], as_json: bool) -> None:
    """Count what is kept, by its kind. Every value is read, which takes a while for a large store.

    \b
    Example:
      tailfold store stats --store redis://127.0.0.1:6379/0
    """
    settings = _settings(flags)
    shelves = _run(_counted(settings))
    if as_json:
        click.echo(json.dumps({"store": masked(settings.store_url), "kinds": shelves}, indent=2))
        return
    rows: list[Sequence[str]] = [("", "values", "bytes", "callers")]
    rows += [(kind, *(f"{number:,}" for number in shelf.values())) for kind, shelf in shelves.items()]
    click.echo("\n".join(aligned(rows)))


@store.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--open", "opened", is_flag=True, help="Do not encrypt, though encryption.keys are set.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@_incomplete
@click.option(
    "--secret-of",
    type=click.Choice(["settings", "store"]),
    help="Which secret callers are named by, where the settings have another one than the store.",
)
@takes_settings("store")
def export(
    flags: dict[str, Any], file: str, opened: bool, force: bool, incomplete: bool, secret_of: SecretOf | None
) -> None:
    """Write all that is kept into FILE, or to standard output for -.

    The file holds conversations and the server's secret. Only its owner can read it, and with encryption.keys
    it is encrypted like the store. The store may be in use meanwhile.

    Where values cannot be decrypted the rest is written, and the exit code is 1.

    \b
    Example:
      tailfold store export --store sqlite:////var/lib/tailfold/tailfold.db tailfold.jsonl
    """
    with written_to(file, replacing=force) as out:
        moved = _run(_exported(_settings(flags), out, opened=opened, secret_of=secret_of))
    _told(moved, "exported", incomplete=incomplete)


@store.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_incomplete
@takes_settings("store")
def import_(flags: dict[str, Any], file: str, incomplete: bool) -> None:
    """Put what FILE holds into the store, or standard input for -.

    What is there already stays as it is; so an import that was broken off can be made again. The callers'
    names come along only where the server's secret is the same. Where values of an encrypted file cannot be
    decrypted the rest is put there, and the exit code is 1.

    \b
    Examples:
      tailfold store import --store redis://127.0.0.1:6379/0 tailfold.jsonl
      tailfold store export --store sqlite:///old.db - | tailfold store import --store sqlite:///new.db -
    """
    with click.open_file(file, "rb") as source:
        moved = _run(_imported(_settings(flags), source))
    _told(moved, "imported", incomplete=incomplete)


@store.command()
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only this kind; repeatable.")
@click.option("--all", "everything", is_flag=True, help="All kinds, and the server's secret.")
@click.option("--expired", "only_expired", is_flag=True, help="Only what has expired and is still there.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@takes_settings("store")
def purge(
    flags: dict[str, Any], kinds: Sequence[str], everything: bool, only_expired: bool, yes: bool
) -> None:
    """Remove what is kept, for good.

    A Tailfold that runs meanwhile still knows some of it, and keeps that again: stop it first.

    \b
    Examples:
      tailfold store purge --kind messages
      tailfold store purge --all --store redis://127.0.0.1:6379/0
    """
    if bool(kinds) == everything and not (only_expired and not everything):
        raise click.UsageError("say what: --kind KIND, --all or --expired")
    settings = _settings(flags)
    spaces = [Space(kind) for kind in kinds] or [*Space]
    if not yes:
        what = "what has expired" if only_expired else ", ".join(kinds) or "everything"
        click.confirm(f"Remove {what} from {masked(settings.store_url)}?", abort=True, err=True)
    gone = _run(_cleared(settings, spaces, only_expired=only_expired))
    click.echo(f"removed {gone:,} values")


@store.command()
@takes_settings("store")
def secret(flags: dict[str, Any]) -> None:
    """Print the secret under which callers are named, for TAILFOLD_SECRET of replicas that share a store.

    Whoever has it and the store can find out whether a key they guess was used.
    """
    click.echo(_run(_secret_of(_settings(flags))).decode())


# What the commands do.


async def _counted(settings: Settings) -> dict[str, dict[str, int]]:
    shelves: dict[str, tuple[int, int, set[bytes]]] = {}
    async with _opened(settings) as (listed, _):
        async for entry in listed.entries():
            number, size, tenants = shelves.get(entry.space, (0, 0, set()))
            tenants.add(entry.tenant)
            shelves[entry.space] = number + 1, size + len(entry.key) + len(entry.value), tenants
    return {
        kind: {"values": number, "bytes": size, "callers": len(tenants - {b""})}
        for kind, (number, size, tenants) in sorted(shelves.items())
    }


async def _exported(settings: Settings, out: IO[bytes], *, opened: bool, secret_of: SecretOf | None) -> Moved:
    from proxy.store.moving import Moved, exported

    moved, keyring = Moved(), _keyring(settings)
    async with _opened(settings) as (listed, inner):
        known = await _secret_for(settings, inner, secret_of)
        async for line in exported(listed, known, moved, keyring=keyring, opened=opened):
            out.write(line)
    return moved


async def _imported(settings: Settings, source: IO[bytes]) -> Moved:
    from proxy.store import mark
    from proxy.store.moving import Moved, imported

    moved, keyring = Moved(), _keyring(settings)
    async with _opened(settings, begins=True) as (_, inner):
        if keyring is None and await mark.has_sign(inner):
            raise click.ClickException(_SET_THE_KEYS)
        try:
            await imported(source, _sealed(inner, keyring), _said(settings), moved, keyring=keyring)
        finally:
            if (
                keyring is not None and moved.entries
            ):  # of an import that is broken off there is something too
                await mark.put_sign(inner)
    return moved


async def _cleared(settings: Settings, spaces: Sequence[Space], *, only_expired: bool) -> int:
    async with _opened(settings) as (listed, _):
        return await listed.clear(spaces, only_expired=only_expired)


async def _secret_of(settings: Settings) -> bytes:
    """The store's own, or what the settings say where it has none."""
    async with _opened(settings) as (_, inner):
        return await _secret_in(settings, inner) or await _secret_for(settings, inner, "settings")


async def _secret_for(settings: Settings, inner: Store, secret_of: SecretOf | None) -> bytes:
    """The secret that the callers' names in the store come from."""
    said, own = _said(settings), await _secret_in(settings, inner)
    if said is not None and own is not None and said != own and secret_of is None:
        raise click.ClickException(
            "the store keeps a secret of its own, and the settings say another. If callers were named by the "
            "store's, as without TAILFOLD_SECRET, say --secret-of store, else --secret-of settings"
        )
    known = own if secret_of == "store" or said is None else said
    if known is None:
        raise click.ClickException("the store keeps no secret: nothing was kept there yet")
    return known


async def _secret_in(settings: Settings, inner: Store) -> bytes | None:
    from proxy.store.mark import is_sealed
    from proxy.store.slots import SECRET

    tenant, space, key = SECRET
    found = (await _sealed(inner, _keyring(settings)).get(tenant, space, [key])).get(key)
    if found is not None and is_sealed(found):
        raise click.ClickException(_SET_THE_KEYS)
    return found


def _said(settings: Settings) -> bytes | None:
    return settings.secret.get_secret_value().encode() if settings.secret is not None else None


@asynccontextmanager
async def _opened(settings: Settings, *, begins: bool = False) -> AsyncIterator[tuple[Listed, Store]]:
    """The store as it is: values sealed, and no memory that stands in for it."""
    from proxy.store import open_primary
    from proxy.store.entries import Listed
    from proxy.tasks import Tasks

    _there_to_be_opened(settings.store_url, begins=begins)
    tasks = Tasks()
    inner = await open_primary(settings.store_url, tasks, time_limit=_PATIENCE)
    try:
        if not isinstance(inner, Listed):
            raise click.ClickException("this store cannot list what it keeps")
        yield inner, inner
    finally:
        await inner.close()
        await tasks.close(timeout=_PATIENCE)


def _there_to_be_opened(url: str, *, begins: bool) -> None:
    from proxy.store import sqlite_path

    if url.startswith("memory://"):
        raise click.ClickException("memory:// keeps nothing beyond a process: there is nothing to look at")
    if url.startswith("sqlite://") and not begins and not sqlite_path(url).exists():
        raise click.ClickException(f"there is no file {sqlite_path(url)}")


def _sealed(inner: Store, keyring: Keyring | None) -> Store:
    from proxy.store.sealed import SealedStore

    return inner if keyring is None else SealedStore(inner, keyring)


def _keyring(settings: Settings) -> Keyring | None:
    from proxy.store.keyring import Keyring

    return Keyring(keys) if (keys := settings.encryption.by_id) else None


def _settings(flags: dict[str, Any]) -> Settings:
    return load(flags, os.environ).settings


def _run(work: Coroutine[Any, Any, T]) -> T:
    from proxy import logs
    from proxy.store.moving import NotMovable

    logs.configure("warning", "auto")
    try:
        return asyncio.run(work)
    except NotMovable as problem:
        raise click.ClickException(str(problem)) from None
    except StoreUnavailable as problem:
        raise click.ClickException(f"the store cannot be used: {problem}") from None


def _told(moved: Moved, done: str, *, incomplete: bool) -> None:
    """Who goes on to remove what was moved must hear of what was not: by the exit code too."""
    from proxy.store.keyring import Unreadable

    reasons = {
        Unreadable.PLAIN: "they are in clear, from before the store was encrypted",
        Unreadable.DAMAGED: "they were changed, or belong to another place",
        Unreadable.FOREIGN: "they cannot be decrypted: their key is not in encryption.keys, or a newer "
        "Tailfold has encrypted them",
    }
    click.echo(f"{done} {moved.entries:,} values", err=True)
    for why, number in moved.left_out.items():
        click.echo(f"{number:,} were left out: {reasons[why]}", err=True)
    if moved.kept:
        click.echo(f"{moved.kept:,} differ from what is in the store, which was kept", err=True)
    if moved.expired:
        click.echo(f"{moved.expired:,} had expired", err=True)
    if moved.left_out and not incomplete:
        raise click.ClickException("not all values could be taken along; --incomplete says that this is fine")
