from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.doctor.encryption import check, judged
from proxy.cli.doctor.finding import Finding, Verdict
from proxy.ports import NOBODY, Space
from proxy.settings import Settings
from proxy.settings.values import encryption_keys
from proxy.store import open_primary
from proxy.store.keyring import Unreadable
from proxy.tasks import Tasks
from tests.store.doubles import FOREVER
from tests.store.servers import Server, server

PASS, WARN, FAIL = Verdict
K1, K2 = (f"{name}:{base64.b64encode(name.encode() * 16).decode()}" for name in ("k1", "k2"))


@pytest.fixture
def valkey() -> Iterator[Server]:
    with server() as one:
        yield one


async def finding(url: str, keys: str | None, **settings: Any) -> Finding:
    tasks = Tasks()
    said = {"keys": keys} if keys else {}
    (found,) = await check(Settings.model_validate({"store": url, "encryption": said, **settings}), tasks)
    await tasks.close(timeout=0)
    assert "=" not in str(found.found)  # as a key ends
    return found


async def begun(url: str, keys: str | None, values: int = 0) -> None:
    """A store as a Tailfold with these keys leaves it."""
    tasks = Tasks()
    store = await open_primary(url, tasks, keys=encryption_keys(keys) if keys else None, time_limit=5)
    await store.put_new(NOBODY, Space.SERVER, b"secret", b"s" * 32, ttl=None)
    for number in range(values):
        await store.put(b"tenant", Space.COUNTS, {bytes(16) + b"%d" % number: b"1"}, ttl=FOREVER)
    await store.close()
    await tasks.close(timeout=0)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


async def test_off_is_said_and_no_file_is_made(file: str, tmp_path: Path) -> None:
    assert (await finding(file, None)).found.startswith("off")
    assert os.listdir(tmp_path) == []


async def test_it_is_said_which_key_seals() -> None:
    found = await finding("memory://", f"{K2},{K1}")
    assert (found.verdict, found.found) == (PASS, "k2 seals, k1 opens too")


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (None, None, PASS),
        (K1, K1, PASS),
        (K1, f"{K2},{K1}", PASS),
        (K1, K2, WARN),
        (K1, None, FAIL),
        (None, K1, WARN),
    ],
)
async def test_keys_that_do_not_open_the_stores_secret_are_a_warning(
    file: str, before: str | None, now: str | None, verdict: Verdict
) -> None:
    await begun(file, before)
    assert (await finding(file, now)).verdict is verdict


async def test_a_secret_that_was_kept_again_under_the_next_key_is_found(file: str) -> None:
    await begun(file, K1)
    await begun(file, f"{K2},{K1}")
    assert (await finding(file, K2)).verdict is PASS


LATER = pytest.mark.parametrize(("now", "verdict"), [(K1, PASS), (K2, WARN), (None, FAIL)])


async def looked_at(url: str, now: str | None) -> Finding:
    await begun(url, K1, values=80)
    found = await finding(url, now, secret="s" * 32)  # so that the store's own counts for nothing
    assert ("50 of 50" in found.found) is (found.verdict is WARN)
    return found


@LATER
async def test_callers_values_in_a_file_are_looked_at(file: str, now: str | None, verdict: Verdict) -> None:
    assert (await looked_at(file, now)).verdict is verdict


@LATER
async def test_callers_values_on_a_server_are_looked_at(
    valkey: Server, now: str | None, verdict: Verdict
) -> None:
    assert (await looked_at(valkey.url, now)).verdict is verdict
    kept = valkey.client.keys("tailfold:*")
    assert len(kept) == 3  # the secret, once more under its key, and one hash


async def test_a_store_that_cannot_be_asked_is_not_looked_into() -> None:
    found = await finding("redis://127.0.0.1:1", K1, secret="s" * 32)
    assert (found.verdict, found.found) == (PASS, "k1 seals")


@pytest.mark.parametrize(
    ("ids", "reasons", "said"),
    [
        (["k1"], [None, Unreadable.PLAIN], "1 of 2 values looked at count as missing: they are in clear"),
        (["k1"], [Unreadable.PLAIN, Unreadable.FOREIGN], "2 of 2 values looked at count as missing: they do"),
        (["k1"], [Unreadable.DAMAGED], "they do not open"),
        ([], [Unreadable.FOREIGN, None, None], "1 of 3 values looked at are encrypted"),
    ],
)
def test_what_does_not_open_is_counted(
    ids: Sequence[str], reasons: Sequence[Unreadable | None], said: str
) -> None:
    found = judged(ids, {reason: reasons.count(reason) for reason in reasons})
    assert found.verdict is WARN
    assert said in found.found
