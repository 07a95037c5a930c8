"""`tailfold demo`: a whole conversation, with nothing but this machine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import tailfold

# A way to the internet that leads nowhere, and settings that are not the demo's.
MISLEADING = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "TAILFOLD_UPSTREAM": "http://127.0.0.1:9/v1",
    "TAILFOLD_MODE": "off",
}


def test_every_turn_and_then_the_totals_are_shown(tmp_path: Path) -> None:
    done = tailfold("demo", "--turns", "3", "--fast", home=tmp_path, env=MISLEADING)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if " received " in line][-3:] == ["1", "2", "3"]
    assert "turns     3, in 6 requests; 0 refused" in lines
    assert "folds     0" in lines
    assert "without   0 turns would have been refused, larger than the window of 8,000 tokens" in lines
    assert "\x1b" not in done.stdout
    assert not list(tmp_path.rglob("*.db"))


def test_the_totals_alone_as_json(tmp_path: Path) -> None:
    done = tailfold("demo", "--turns", "2", "--fast", "--json", home=tmp_path)
    totals = json.loads(done.stdout)
    assert totals["turns"] == 2
    assert totals["requests"] == 4
    assert totals["received_tokens"] == totals["sent_tokens"] > 1000


def test_a_window_that_nothing_fits_in_ends_with_code_1(tmp_path: Path) -> None:
    done = tailfold("demo", "--turns", "2", "--window", "20", "--fast", home=tmp_path)
    assert done.returncode == 1
    assert "turns     2, in 2 requests; 2 refused" in done.stdout
