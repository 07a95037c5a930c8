"""`tailfold store`: a conversation is taken from a file to a server and goes on there."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.simulator import Simulator
from tests.cli.command import tailfold
from tests.folding.agent import prose, small
from tests.folding.processes import agent_at, proxying
from tests.simulator.talk import Message
from tests.store.servers import Server, server

FILE = "sqlite:///state.db"
KEYS = f"k1:{base64.b64encode(b'1' * 32).decode()}"
OTHER_KEYS = f"k2:{base64.b64encode(b'2' * 32).decode()}"
CANARY = "canary-said-51c9"
SECRET = "a secret that is long enough, for a test"
IN_BASE64 = base64.b64encode(SECRET.encode()).decode()
# As an export writes it; the first value is the secret.
ONE_VALUE = f"""{{"is":"head","format":"tailfold store","version":1,"sealed":false}}
{{"is":"entry","tenant":"","space":"server","key":"c2VjcmV0","value":"{IN_BASE64}","until":"for good"}}
{{"is":"entry","tenant":"YWxpY2U=","space":"windows","key":"a2V5","value":"dmFsdWU=","until":"never"}}
{{"is":"end","entries":2}}
"""


@pytest.fixture
async def upstream() -> AsyncIterator[Simulator]:
    async with Simulator(small()) as simulator:
        yield simulator


@pytest.fixture
def valkey() -> Iterator[Server]:
    with server() as one:
        yield one


async def talked(upstream: Simulator, home: Path, **env: str) -> list[Message]:
    """A conversation on the file that has been folded; its last message is the user's."""
    history: list[Message] = [{"role": "system", "content": "You look after the harbour."}]
    async with proxying(upstream, home, "--store", FILE, **env) as proxy, agent_at(proxy, history) as agent:
        while not any(answer.action == "reuse" for answer in agent.answers):
            await agent.say(f"Turn {len(history)}: {CANARY} {prose(len(history), 200)}")
        await asyncio.to_thread(proxy.end)
    return history[:-1]


def store(*arguments: str, home: Path, **env: str) -> str:
    done = tailfold("store", *arguments, home=home, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*arguments: str, home: Path, **env: str) -> str:
    done = tailfold("store", *arguments, home=home, env=env)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    return done.stderr


def files(home: Path, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in home.glob(f"{name}*"))


async def test_a_conversation_moves_from_a_file_to_a_server_and_back_with_its_fold(
    upstream: Simulator, tmp_path: Path, valkey: Server
) -> None:
    history = await talked(upstream, tmp_path)
    sent, summaries = upstream.chat_calls()[-1].body, len(upstream.summary_calls())
    secret = {"TAILFOLD_SECRET": store("secret", "--store", FILE, home=tmp_path).strip()}
    store("export", "--store", FILE, "there.jsonl", home=tmp_path)
    store("import", "--store", valkey.url, "there.jsonl", home=tmp_path, **secret)
    store("export", "--store", valkey.url, "back.jsonl", home=tmp_path, **secret)
    store("import", "--store", "sqlite:///new.db", "back.jsonl", home=tmp_path)
    kept = [
        json.loads(store("stats", "--json", "--store", url, home=tmp_path, **env))["kinds"]
        for url, env in ((FILE, {}), (valkey.url, secret), ("sqlite:///new.db", {}))
    ]
    for each in kept:
        each.pop("server", None)
    assert kept[0] == kept[1] == kept[2]
    assert {"folds", "messages", "lanes", "counts", "anchors"} <= kept[0].keys()
    for url, env in ((valkey.url, secret), ("sqlite:///new.db", {})):
        async with (
            proxying(upstream, tmp_path, "--store", url, **env) as proxy,
            agent_at(proxy, history) as agent,
        ):
            answer = await agent.send()
            assert (answer.status, answer.action) == (200, "reuse")
            await asyncio.to_thread(proxy.end)
        assert upstream.chat_calls()[-1].body == sent
    assert len(upstream.summary_calls()) == summaries


async def test_what_is_encrypted_stays_so_in_the_file_that_is_exported(
    upstream: Simulator, tmp_path: Path
) -> None:
    sealed = {"TAILFOLD_ENCRYPTION__KEYS": KEYS}
    history = await talked(upstream, tmp_path, **sealed)
    secret = store("secret", "--store", FILE, home=tmp_path, **sealed).strip()
    assert "encrypted" in refused("secret", "--store", FILE, home=tmp_path)
    assert "encrypted" in refused("export", "--store", FILE, "no.jsonl", home=tmp_path)
    store("export", "--store", FILE, "sealed.jsonl", home=tmp_path, **sealed)
    store("export", "--store", FILE, "open.jsonl", "--open", home=tmp_path, **sealed)
    inside = base64.b64encode(secret.encode())
    for name, is_there in (("sealed.jsonl", False), ("open.jsonl", True)):
        content = (tmp_path / name).read_bytes()
        assert (inside in content) is is_there
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert "encryption.keys" in refused(
        "import", "--store", "sqlite:///new.db", "sealed.jsonl", home=tmp_path
    )
    store("import", "--store", "sqlite:///new.db", "sealed.jsonl", home=tmp_path, **sealed)
    assert CANARY.encode() not in files(tmp_path, "new.db")
    summaries = len(upstream.summary_calls())
    async with (
        proxying(upstream, tmp_path, "--store", "sqlite:///new.db", **sealed) as proxy,
        agent_at(proxy, history) as agent,
    ):
        assert (await agent.send()).action == "reuse"
        await asyncio.to_thread(proxy.end)
    assert len(upstream.summary_calls()) == summaries


async def test_what_is_purged_is_gone(upstream: Simulator, tmp_path: Path) -> None:
    await talked(upstream, tmp_path)
    assert CANARY.encode() in files(tmp_path, "state.db")
    assert "--all" in refused("purge", "--store", FILE, home=tmp_path)
    both = ("--all", "--kind", "folds")
    assert "--all" in refused("purge", "--store", FILE, *both, home=tmp_path)
    assert "Aborted" in refused("purge", "--store", FILE, "--all", home=tmp_path)
    store("purge", "--store", FILE, "--expired", "--yes", home=tmp_path)
    assert CANARY.encode() in files(tmp_path, "state.db")
    store("purge", "--store", FILE, "--kind", "messages", "--yes", home=tmp_path)
    kinds = json.loads(store("stats", "--json", "--store", FILE, home=tmp_path))["kinds"]
    assert "messages" not in kinds
    assert "folds" in kinds
    store("purge", "--store", FILE, "--all", "--yes", home=tmp_path)
    assert json.loads(store("stats", "--json", "--store", FILE, home=tmp_path))["kinds"] == {}
    assert CANARY.encode() not in files(tmp_path, "state.db")


def test_an_export_never_overwrites_unasked_and_leaves_no_half_of_a_file(
    tmp_path: Path, valkey: Server
) -> None:
    secret = {"TAILFOLD_SECRET": "a secret that is long enough, for a test"}
    (tmp_path / "there.jsonl").write_text("precious")
    told = refused("export", "--store", valkey.url, "there.jsonl", home=tmp_path, **secret)
    assert "--force" in told
    assert (tmp_path / "there.jsonl").read_text() == "precious"
    store("export", "--store", valkey.url, "there.jsonl", "--force", home=tmp_path, **secret)
    assert (tmp_path / "there.jsonl").read_text().count("\n") == 3
    valkey.kill()
    told = refused("export", "--store", valkey.url, "new.jsonl", home=tmp_path, **secret)
    assert "the store cannot be used" in told
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("new")]


@pytest.mark.parametrize(
    ("keys_before", "keys_now", "why"),
    [
        (KEYS, None, "cannot be decrypted"),
        (KEYS, OTHER_KEYS, "cannot be decrypted"),
        (None, KEYS, "in clear"),
    ],
)
def test_a_script_does_not_go_on_to_purge_what_could_not_be_exported(
    tmp_path: Path, keys_before: str | None, keys_now: str | None, why: str
) -> None:
    secret = {"TAILFOLD_SECRET": SECRET}
    before, now = (with_keys(each) | secret for each in (keys_before, keys_now))
    (tmp_path / "one.jsonl").write_text(ONE_VALUE)
    store("import", "--store", FILE, "one.jsonl", home=tmp_path, **before)
    export = ("export", "--store", FILE, "x.jsonl", "--secret-of", "settings", "--force")
    told = refused(*export, home=tmp_path, **now)
    assert "exported 1 values\n1 were left out" in told
    assert why in told
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 3
    store(*export, "--incomplete", home=tmp_path, **now)
    store("export", "--store", FILE, "whole.jsonl", home=tmp_path, **before)


def with_keys(keys: str | None) -> dict[str, str]:
    return {"TAILFOLD_ENCRYPTION__KEYS": keys} if keys else {}


def test_by_way_of_a_pipe(tmp_path: Path, valkey: Server) -> None:
    secret = {"TAILFOLD_SECRET": "a secret that is long enough, for a test"}
    exported = store("export", "--store", valkey.url, "-", home=tmp_path, **secret)
    (tmp_path / "piped.jsonl").write_text(exported)
    store("import", "--store", "sqlite:///new.db", "piped.jsonl", home=tmp_path)
    assert store("secret", "--store", "sqlite:///new.db", home=tmp_path).strip() == secret["TAILFOLD_SECRET"]


def test_two_secrets_must_be_chosen_between(tmp_path: Path, valkey: Server) -> None:
    one, other = ({"TAILFOLD_SECRET": f"a secret that is long enough, number {each}"} for each in (1, 2))
    exported = store("export", "--store", valkey.url, "-", home=tmp_path, **one)
    (tmp_path / "one.jsonl").write_text(exported)
    store("import", "--store", FILE, "one.jsonl", home=tmp_path)
    told = refused("export", "--store", FILE, "x.jsonl", home=tmp_path, **other)
    assert "--secret-of" in told
    assert one["TAILFOLD_SECRET"] not in told
    assert other["TAILFOLD_SECRET"] not in told
    for choice, chosen in (("store", one), ("settings", other)):
        flags = ("--secret-of", choice, "--force")
        store("export", "--store", FILE, "x.jsonl", *flags, home=tmp_path, **other)
        inside = base64.b64encode(chosen["TAILFOLD_SECRET"].encode())
        assert inside in (tmp_path / "x.jsonl").read_bytes()
    told = refused("import", "--store", FILE, "one.jsonl", home=tmp_path, **other)
    assert "another secret" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("stats", "--store", "memory://"), "nothing to look at"),
        (("stats", "--store", "sqlite:///none.db"), "there is no file"),
        (("export", "--store", "sqlite:///none.db", "x"), "there is no file"),
        (("secret", "--store", "sqlite:///none.db"), "there is no file"),
        (("stats", "--store", "redis://127.0.0.1:1/0"), "the store cannot be used"),
        (("import", "--store", "sqlite:///new.db", "none.jsonl"), "does not exist"),
        (("import", "--store", "sqlite:///new.db", "readme.txt"), "not a file of tailfold store export"),
        (("stats", "--store", "redis://:hunter2@127.0.0.1:1/0"), "the store cannot be used"),
        (("purge", "--kind", "dreams"), "Invalid value"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "readme.txt").write_text("hello\n")
    env = {"TAILFOLD_SECRET": "a secret that is long enough, for a test"} if "redis" in str(arguments) else {}
    said = refused(*arguments, home=tmp_path, **env)
    assert told in said
    assert "hunter2" not in said
    assert not (tmp_path / "none.db").exists()
