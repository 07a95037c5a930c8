"""The example of a custom store, installed as a package beside the real command."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from proxy.simulator import Simulator
from tests.cli.command import tailfold
from tests.folding.agent import prose, small
from tests.folding.processes import agent_at, proxying
from tests.simulator.talk import Message
from tests.store.packages import install_example

KEYS = f"k1:{base64.b64encode(b'1' * 32).decode()}"
SAID = "canary-said-51c9"


@pytest.mark.parametrize("keys", ["", KEYS], ids=["as it is", "encrypted"])
async def test_a_conversation_is_kept_by_it_across_workers_and_restarts(tmp_path: Path, keys: str) -> None:
    install_example(tmp_path / "site")
    history: list[Message] = []
    store = ("--store", f"folder://{tmp_path}/state")
    env = {"TAILFOLD_ENCRYPTION__KEYS": keys, "PYTHONPATH": str(tmp_path / "site")}
    async with Simulator(small()) as upstream:
        async with proxying(upstream, tmp_path, *store, "--workers", "2", **env) as proxy:
            actions = set()
            while "reuse" not in actions:
                assert len(history) < 100
                async with agent_at(proxy, history) as agent:
                    answer = await agent.say(f"{SAID} {prose(len(history), 200)}")
                    assert answer.status == 200
                    actions.add(answer.action)
            assert await asyncio.to_thread(proxy.end) == 0
        summaries = len(upstream.summary_calls())
        async with (
            proxying(upstream, tmp_path, *store, **env) as again,
            agent_at(again, history[:-1]) as agent,
        ):
            assert (await agent.send()).fold == answer.fold
            assert await asyncio.to_thread(again.end) == 0
        assert len(upstream.summary_calls()) == summaries
    assert "cannot be used" not in "".join(proxy.errors + again.errors)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert (SAID.encode() in kept) == (not keys)


def test_without_the_package_the_command_says_what_is_missing(tmp_path: Path) -> None:
    told = tailfold("check-config", home=tmp_path, env={"TAILFOLD_STORE": "folder:///state"})
    assert told.returncode == 2
    assert "tailfold.stores" in told.stderr
