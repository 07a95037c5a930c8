"""Facts of models as they are written down, and what is said of mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.config_files import SettingsError
from proxy.settings.sections import Model
from proxy.windows.entries import facts_from, facts_in, said_by_the_user
from proxy.windows.facts import ModelFacts

EVERYTHING: dict[str, Any] = {
    "window": 8192,
    "excludes_answer": True,
    "max_output": 1024,
    "encoding": "cl100k_base",
    "images": "anthropic",
    "factor": 1.25,
    "threshold": 1,
    "retain_tokens": 500,
    "strategy": "extractive",
    "summary_model": "small",
}


def written(folder: Path, text: str) -> Path:
    file = folder / "models.yaml"
    file.write_text(text)
    return file


def test_every_fact_can_be_written_down() -> None:
    assert facts_from(EVERYTHING, "here") == ModelFacts(
        8192, True, 1024, "cl100k_base", "anthropic", 1.25, 1, 500, "extractive", "small"
    )
    assert facts_from({}, "here") == ModelFacts()


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("windw", 5, "here: windw: unknown; known are window, excludes_answer, "),
        ("window", 0, "here: window: should be a whole number above 0, not 0"),
        ("window", "8k", "here: window: should be a whole number above 0, not '8k'"),
        ("window", True, "here: window: should be a whole number above 0, not True"),
        ("window", 8192.0, "here: window: should be a whole number above 0"),
        ("window", None, "here: window: should be a whole number above 0"),
        ("excludes_answer", "yes", "here: excludes_answer: should be true or false"),
        ("max_output", -1, "here: max_output: should be"),
        ("encoding", "p50k_base", "here: encoding: should be a known vocabulary"),
        ("images", "tiles", "here: images: should be one of tiles-85-170, "),
        ("images", ["tiles-85-170"], "here: images: should be one of"),
        ("factor", 0, "here: factor: should be a number above 0.1"),
        ("factor", float("nan"), "here: factor: should be a number"),
        ("factor", True, "here: factor: should be a number"),
        ("threshold", 1.5, "here: threshold: should be a share"),
        ("threshold", "0.9", "here: threshold: should be a share"),
        ("retain_tokens", 0, "here: retain_tokens: should be"),
        ("retain_tokens", "101%", "here: retain_tokens: should be"),
        ("strategy", "shorten", "here: strategy: should be one of summarize, extractive, off"),
        ("summary_model", " ", "here: summary_model: should be a model's name"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_key(key: str, value: object, complaint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        facts_from({**EVERYTHING, key: value}, "here")
    [problem] = refused.value.problems
    assert problem.startswith(complaint)


def test_what_a_window_excludes_is_not_said_without_the_window() -> None:
    with pytest.raises(SettingsError, match=r"here: excludes_answer: .* give the window with it"):
        facts_from({"excludes_answer": True}, "here")


def test_a_file_is_read_in_its_order(tmp_path: Path) -> None:
    file = written(tmp_path, "models:\n  b-*: {factor: 1.1}\n  a.1: {window: 8_192}\n  4: {max_output: 5}\n")
    assert facts_in(file) == {
        "b-*": ModelFacts(factor=1.1),
        "a.1": ModelFacts(window=8192),
        "4": ModelFacts(max_output=5),
    }
    assert list(facts_in(file)) == ["b-*", "a.1", "4"]


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "models:\n  a: {window: none}\n  b: {window: 5}\n  c: 5\n  d: {windw: 5}\n")
    with pytest.raises(SettingsError) as refused:
        facts_in(file)
    assert [problem.partition(": ")[2].partition(" ")[0] for problem in refused.value.problems] == [
        "models.a:",
        "models.c:",
        "models.d:",
    ]
    assert all(str(file) in problem for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models: [a]", "models: should be a mapping"),
        ("models:", "models: should be a mapping"),
        ("modls: {a: {window: 5}}", "modls.a: only models may stand here"),
        ("models: {a: {window: 5}, a: {window: 6}}", "models.a is given twice"),
        ("models: {a: {window: 5, window: 6}}", "models.a.window is given twice"),
        ("models: {", "not valid YAML"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    # Twins are found by their lines, so each key gets its own.
    with pytest.raises(SettingsError, match=complaint):
        facts_in(written(tmp_path, text.replace("{", "{\n ").replace(", ", ",\n ")))


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert facts_in(written(tmp_path, "# nothing\n")) == {}


def test_the_settings_say_the_same_things() -> None:
    assert said_by_the_user({"mine": Model(**EVERYTHING)}) == {"mine": facts_from(EVERYTHING, "")}
    assert said_by_the_user({"mine": Model(window=5)}) == {"mine": ModelFacts(window=5)}
