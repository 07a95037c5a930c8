"""What was learned outlives the process, however it ends; a broken store costs a warning and no request."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PATIENCE, Serving, eventually, serving, started
from tests.simulator.talk import chat, user

STORY = "A long walk through the old town, past the harbour and back. " * 40
ASK = {**chat(user(STORY)), "max_tokens": 100}


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[str]:
    """Bills a third more than we would count, and has a smaller window than the map says."""
    simulator = (sys.executable, "-P", "-m", "proxy.simulator", "--port", "0")
    with started(*simulator, "--window", "8000", "--tokenizer-factor", "1.3", home=tmp_path) as provider:
        yield provider.line().removeprefix("simulator listening at ")


def ask(proxy: Serving, body: dict[str, Any]) -> HTTPResponse:
    request = urllib.request.Request(
        f"{proxy.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer sk-test", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoErrors())
    answer: HTTPResponse = opener.open(request, timeout=PATIENCE)
    return answer


class _NoErrors(urllib.request.HTTPErrorProcessor):
    """A refusal is an answer like any other."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        return response

    https_response = http_response


def serve(upstream: str, home: Path) -> Any:
    return serving("--upstream", upstream, "--store", "sqlite:///state.db", home=home)


def told(answer: HTTPResponse) -> tuple[int, int]:
    return int(answer.headers["X-Tailfold-Tokens"]), int(answer.headers["X-Tailfold-Limit"])


def stored(home: Path, space: str) -> int:
    with sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True) as file:
        return int(file.execute("SELECT count(*) FROM facts WHERE space = ?", (space,)).fetchone()[0])


def test_after_a_kill_counts_bills_and_windows_are_still_there(upstream: str, tmp_path: Path) -> None:
    with serve(upstream, tmp_path) as proxy:
        refused = ask(proxy, {**ASK, "messages": [user(STORY * 16)]})
        assert refused.status == 400
        assert told(refused)[1] > 100_000
        first = ask(proxy, ASK)  # of somebody who was never answered nothing is kept
        billed = json.load(first)["usage"]["prompt_tokens"]
        assert told(first)[0] < 0.8 * billed
        spaces = ("windows", "counts", "anchors")
        eventually(lambda: min(stored(tmp_path, space) for space in spaces) > 0)
        proxy.end(signal.SIGKILL)
    with serve(upstream, tmp_path) as proxy:
        counted, limit = told(ask(proxy, ASK))
        assert counted == billed
        assert limit == 8000 - 100 - 400


def test_no_key_is_in_the_file_and_where_messages_are_not_to_be_kept_no_word(
    upstream: str, tmp_path: Path
) -> None:
    env = {"TAILFOLD_HISTORY__STORE_MESSAGES": "false"}
    store = ("--upstream", upstream, "--store", "sqlite:///state.db")
    with serving(*store, home=tmp_path, env=env) as proxy:
        ask(proxy, ASK)
        proxy.end()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert kept
    assert b"sk-test" not in kept
    assert b"harbour" not in kept


def test_a_corrupt_file_is_set_aside_and_a_new_one_begun(upstream: str, tmp_path: Path) -> None:
    broken = b"this was never a database " * 1000
    (tmp_path / "state.db").write_bytes(broken)
    with serve(upstream, tmp_path) as proxy:
        assert ask(proxy, ASK).status == 200
        eventually(lambda: stored(tmp_path, "anchors") > 0)
    [aside] = tmp_path.glob("state.db.corrupt-*")
    assert aside.read_bytes() == broken


def test_a_store_that_cannot_be_used_costs_one_warning(upstream: str, tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with serve(upstream, tmp_path) as proxy:
        assert [ask(proxy, ASK).status for _ in range(3)] == [200, 200, 200]
        proxy.end()
    assert len([line for line in proxy.errors if "the store cannot be used" in line]) == 1
