"""`tailfold models`: what is known of a model, and who has said so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import tailfold


def shown(home: Path, *arguments: str, **env: str) -> Any:
    done = tailfold("models", "--json", *arguments, home=home, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o", "gpt-4o-2099-01-01", "ft:gpt-4o:acme::AbC"])
def test_a_name_in_any_dress_finds_its_model(tmp_path: Path, name: str) -> None:
    found = shown(tmp_path, name)
    assert found["model"] == name
    assert found["window"] == {"value": 128_000, "origin": "map"}
    assert found["encoding"]["value"] == "o200k_base"
    assert found["summary_model"]["value"] == "gpt-4o-mini"


def test_the_users_word_is_marked_as_such(tmp_path: Path) -> None:
    found = shown(tmp_path, "gpt-4o", TAILFOLD_MODELS='{"gpt-4*": {"window": 9000}}')
    assert found["window"] == {"value": 9000, "origin": "setting"}
    assert found["max_output"]["origin"] == "map"


def test_an_unknown_name_is_not_guessed(tmp_path: Path) -> None:
    assert shown(tmp_path, "gpt-4omega")["window"] == {"value": 4096, "origin": "default"}
    plain = tailfold("models", "my-model", home=tmp_path).stdout
    assert "4,096" in plain
    assert "Nobody has said how large its window is" in plain


def test_without_a_name_the_whole_map_is_shown(tmp_path: Path) -> None:
    everything = shown(tmp_path, TAILFOLD_MODELS='{"my-model": {"window": 9000}}')
    assert {"my-model", "gpt-5", "gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro"} <= everything.keys()
    table = tailfold("models", home=tmp_path).stdout.splitlines()
    assert table[0].split()[:3] == ["model", "window", "max_output"]
    assert any(line.startswith("gpt-4o ") and "128,000" in line for line in table)


def test_a_mistake_in_the_settings_is_told(tmp_path: Path) -> None:
    done = tailfold("models", home=tmp_path, env={"TAILFOLD_MODELS": '{"m": {"images": "by weight"}}'})
    assert done.returncode == 2
    assert "images" in done.stderr
    assert "Traceback" not in done.stderr
