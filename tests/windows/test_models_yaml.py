"""The shipped map keeps to the table it is made from, and to litellm's where it does not say otherwise."""

from __future__ import annotations

from functools import cache

import pytest

from proxy.config_files import config_dir
from proxy.windows.entries import facts_in
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.litellm_map import litellm_map
from proxy.windows.model_map import ModelMap

ENTRIES = facts_in(config_dir() / "models.yaml")
PATTERNS = [name for name in ENTRIES if "*" in name]
MODELS = [name for name in ENTRIES if "*" not in name]

# Where the shipped map says something else than litellm's; the reasons stand beside the entries.
WINDOWS_THAT_DIFFER = {"gpt-5.1-codex", "gpt-5.1-codex-mini", "gpt-5.1-codex-max"}
ANSWERS_THAT_DIFFER = {"gpt-4", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"}


@cache
def shipped() -> ModelMap:
    known = ModelMap({})
    known.load()
    return known


def look_up(name: str) -> KnownModel:
    return shipped().look_up(name)


@pytest.mark.parametrize(
    ("name", "window", "max_output", "excludes_answer"),
    [
        ("gpt-5", 272_000, 128_000, True),
        ("gpt-5-mini", 272_000, 128_000, True),
        ("gpt-5-nano", 272_000, 128_000, True),
        ("gpt-5.1", 272_000, 128_000, True),
        ("gpt-5.1-codex", 272_000, 128_000, True),
        ("gpt-5-chat-latest", 128_000, 16_384, None),
        ("gpt-4.1", 1_047_576, 32_768, None),
        ("gpt-4.1-mini", 1_047_576, 32_768, None),
        ("gpt-4.1-nano", 1_047_576, 32_768, None),
        ("gpt-4o", 128_000, 16_384, None),
        ("gpt-4o-2024-05-13", 128_000, 4_096, None),
        ("gpt-4o-mini", 128_000, 16_384, None),
        ("gpt-4-turbo", 128_000, 4_096, None),
        ("gpt-4-turbo-preview", 128_000, 4_096, None),
        ("gpt-4", 8_192, 8_192, None),
        ("gpt-3.5-turbo", 16_385, 4_096, None),
        ("gpt-3.5-turbo-0613", 4_096, 4_096, None),
        ("o1", 200_000, 100_000, None),
        ("o3", 200_000, 100_000, None),
        ("o3-mini", 200_000, 100_000, None),
        ("o4-mini", 200_000, 100_000, None),
        ("claude-3-haiku-20240307", 200_000, 4_096, None),
        ("claude-3-sonnet-20240229", 200_000, 4_096, None),
        ("claude-3-opus-20240229", 200_000, 4_096, None),
        ("claude-3-5-haiku-20241022", 200_000, 8_192, None),
        ("claude-3-5-sonnet-20241022", 200_000, 8_192, None),
        ("claude-3-7-sonnet-20250219", 200_000, 64_000, None),
        ("claude-sonnet-4-20250514", 200_000, 64_000, None),
        ("claude-opus-4-20250514", 200_000, 32_000, None),
        ("claude-opus-4-1-20250805", 200_000, 32_000, None),
        ("claude-haiku-4-5", 200_000, 64_000, None),
        ("claude-sonnet-4-5", 200_000, 64_000, None),
        ("claude-opus-4-5", 200_000, 64_000, None),
        ("gemini-2.5-pro", 1_048_576, 65_536, True),
        ("gemini-2.5-flash", 1_048_576, 65_536, True),
        ("gemini-2.5-flash-lite", 1_048_576, 65_536, True),
        ("gemini-2.0-flash", 1_048_576, 8_192, True),
        ("deepseek-chat", 131_072, 8_192, None),
        ("deepseek-reasoner", 131_072, 65_536, None),
    ],
)
def test_windows_and_longest_answers(
    name: str, window: int, max_output: int, excludes_answer: bool | None
) -> None:
    facts = look_up(name).facts
    assert (facts.window, facts.max_output, facts.excludes_answer) == (window, max_output, excludes_answer)


def retained(name: str) -> int:
    if name.startswith(("gpt-5", "gemini-")):
        return 2_000
    return 1_500 if name.startswith("claude-") else 1_000


def summary_model(name: str) -> str | None:
    if name.startswith("deepseek-"):
        return None
    by_maker = {"claude-": "claude-haiku-4-5", "gemini-": "gemini-2.5-flash"}
    return next((model for maker, model in by_maker.items() if name.startswith(maker)), "gpt-4o-mini")


def factor(name: str) -> float | None:
    by_maker = {"claude-": 1.25, "deepseek-": 1.12}
    return next((number for maker, number in by_maker.items() if name.startswith(maker)), None)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_follows_the_table(name: str) -> None:
    facts = look_up(name).facts
    assert facts.threshold == (0.98 if name.startswith("gemini-") else 0.95)
    assert facts.retain_tokens == retained(name)
    assert facts.summary_model == summary_model(name)
    assert facts.factor == factor(name)
    assert facts.encoding == (
        "cl100k_base" if name.startswith(("gpt-4-", "gpt-3.5-")) or name == "gpt-4" else "o200k_base"
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_its_own_window_and_answer(name: str) -> None:
    found = look_up(name)
    assert found.origins["window"] is found.origins["max_output"] is Origin.MAP
    assert ENTRIES[name].window is not None
    assert (ENTRIES[name].max_output or 0) <= (ENTRIES[name].window or 0)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_guesses_a_window_or_an_answer(name: str) -> None:
    facts = ENTRIES[name]
    assert (facts.window, facts.max_output, facts.excludes_answer) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("gpt-5", "tiles-70-140"),
        ("gpt-5.1", "tiles-70-140"),
        ("gpt-5-mini", "patches-1.62"),
        ("gpt-5-nano-2025-08-07", "patches-2.46"),
        ("gpt-4.1", "tiles-85-170"),
        ("gpt-4.1-mini", "patches-1.62"),
        ("gpt-4.1-nano", "patches-2.46"),
        ("gpt-4o", "tiles-85-170"),
        ("gpt-4o-mini", "tiles-2833-5667"),
        ("o1", "tiles-75-150"),
        ("o3", "tiles-75-150"),
        ("o4-mini", "patches-1.72"),
        ("claude-opus-4-1", "anthropic"),
        ("gemini-2.5-flash", "gemini"),
    ],
)
def test_images_are_counted_by_the_models_own_rule(name: str, rule: str) -> None:
    assert look_up(name).facts.images == rule


@pytest.mark.parametrize("name", MODELS)
def test_where_litellm_has_numbers_too_they_are_the_same_or_the_difference_is_known(name: str) -> None:
    theirs = litellm_map().facts(name) or ModelFacts()
    ours = ENTRIES[name]
    if theirs.window is not None:
        assert (ours.window != theirs.window) == (name in WINDOWS_THAT_DIFFER)
    if theirs.max_output is not None:
        assert (ours.max_output != theirs.max_output) == (name in ANSWERS_THAT_DIFFER)
    if ours.window == theirs.window:
        assert ours.excludes_answer == theirs.excludes_answer
