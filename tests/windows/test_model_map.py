"""Three layers put together: whose word counts for which fact."""

from __future__ import annotations

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config_files import SettingsError
from proxy.windows.facts import KnownModel, ModelFacts, Origin
from proxy.windows.model_map import ModelMap
from proxy.windows.names import LONGEST

NOTHING = KnownModel()


def loaded(user: dict[str, ModelFacts] | None = None, shipped: Path | None = None) -> ModelMap:
    known = ModelMap(user or {}, shipped)
    known.load()
    return known


@cache
def shipped_map() -> ModelMap:
    return loaded()


def written(folder: Path, text: str) -> Path:
    file = folder / "models.yaml"
    file.write_text(text)
    return file


# The user's own layer.


def test_the_exact_name_counts_first_then_the_longest_pattern_for_each_fact() -> None:
    known = ModelMap(
        {
            "*": ModelFacts(window=1, threshold=0.1, factor=1.1),
            "claude-*": ModelFacts(window=2, threshold=0.2),
            "claude-next": ModelFacts(window=3),
        }
    )
    assert known.look_up("claude-next").facts == ModelFacts(window=3, threshold=0.2, factor=1.1)
    assert known.look_up("claude-other").facts == ModelFacts(window=2, threshold=0.2, factor=1.1)
    assert known.look_up("my-model").facts == ModelFacts(window=1, threshold=0.1, factor=1.1)


@pytest.mark.parametrize(
    ("written_as", "sent", "matches"),
    [
        ("My-Model", "my-model", True),
        ("my-model", "MY-MODEL", True),
        ("openai/*", "openai/gpt-4o", True),
        ("openai/*", "gpt-4o", False),
        ("openai/gpt-4o", "gpt-4o", False),
        ("gpt-4o", "openai/gpt-4o-2024-08-06", True),
        ("gpt-4o*", "azure/gpt-4o-mini", True),
        ("ft:*", "ft:gpt-4o:acme::AbC", True),
        ("claude-?-opus", "claude-3-opus-20240229", True),
        ("llama-[23]*", "meta-llama/Llama-3.1-8B-Instruct", True),
        ("gpt-4", "gpt-4o", False),
        ("my-model", "my-model-2", False),
    ],
)
def test_which_names_an_entry_is_for(written_as: str, sent: str, matches: bool) -> None:
    found = ModelMap({written_as: ModelFacts(window=7)}).look_up(sent)
    assert found.facts.window == (7 if matches else None)


def test_the_name_as_sent_counts_more_than_its_family() -> None:
    known = ModelMap({"gpt-4o": ModelFacts(window=1), "openai/gpt-4o": ModelFacts(window=2)})
    assert known.look_up("openai/gpt-4o-2024-08-06").facts.window == 2
    assert known.look_up("gpt-4o-2024-08-06").facts.window == 1


# The layers, one over the other.


def test_before_loading_only_the_user_answers() -> None:
    known = ModelMap({"gpt-4o": ModelFacts(threshold=0.5)})
    assert known.look_up("gpt-4o").facts == ModelFacts(threshold=0.5)
    assert known.look_up("gpt-5") == NOTHING
    known.load()
    assert known.look_up("gpt-4o").facts.window == 128_000
    assert known.look_up("gpt-5").facts.window == 272_000


def test_each_fact_has_the_origin_of_the_layer_that_said_it(tmp_path: Path) -> None:
    shipped = written(
        tmp_path, "models:\n  gpt-4o: {threshold: 0.5, retain_tokens: 9}\n  gpt-*: {factor: 2}\n"
    )
    found = loaded({"gpt-4o": ModelFacts(retain_tokens=7)}, shipped).look_up("gpt-4o")
    assert found.facts == ModelFacts(128_000, None, 16_384, None, None, 2, 0.5, 7, None)
    assert found.origins == {
        "window": Origin.LITELLM,
        "max_output": Origin.LITELLM,
        "factor": Origin.MAP,
        "threshold": Origin.MAP,
        "retain_tokens": Origin.SETTING,
    }


def test_of_the_same_name_the_shipped_map_counts_more_than_litellms(tmp_path: Path) -> None:
    shipped = written(tmp_path, "models: {gpt-4o: {window: 100}}\n")
    found = loaded({}, shipped).look_up("gpt-4o")
    assert (found.facts.window, found.origins["window"]) == (100, Origin.MAP)
    assert (found.facts.max_output, found.origins["max_output"]) == (16_384, Origin.LITELLM)


def test_a_pattern_of_the_user_counts_more_than_a_shipped_exact_name() -> None:
    found = loaded({"*": ModelFacts(window=5)}).look_up("gpt-4o")
    assert (found.facts.window, found.origins["window"]) == (5, Origin.SETTING)


def test_an_exact_name_of_litellms_counts_more_than_the_shipped_family() -> None:
    copilots = shipped_map().look_up("github_copilot/gpt-5-mini")
    assert (copilots.facts.window, copilots.facts.excludes_answer) == (128_000, None)
    assert copilots.origins["window"] is Origin.LITELLM
    assert copilots.facts.retain_tokens == 2_000  # but it is of the family all the same


def test_a_name_without_numbers_in_litellms_map_has_those_of_its_family() -> None:
    assert shipped_map().look_up("azure/eu/gpt-5").facts == shipped_map().look_up("gpt-5").facts


def test_what_a_window_excludes_goes_with_the_window() -> None:
    smaller = loaded({"gpt-5": ModelFacts(window=100_000)}).look_up("gpt-5")
    assert (smaller.facts.window, smaller.facts.excludes_answer) == (100_000, None)
    assert "excludes_answer" not in smaller.origins
    own = loaded({"gpt-4o": ModelFacts(window=100_000, excludes_answer=True)}).look_up("gpt-4o")
    assert own.facts.excludes_answer is True
    assert own.origins["excludes_answer"] is own.origins["window"] is Origin.SETTING


def test_a_pattern_says_nothing_of_a_window_that_another_gave() -> None:
    known = ModelMap({"a": ModelFacts(window=5), "*": ModelFacts(window=9, excludes_answer=True)})
    assert known.look_up("a").facts == ModelFacts(window=5)
    assert known.look_up("b").facts == ModelFacts(window=9, excludes_answer=True)


# Names as clients send them.


@pytest.mark.parametrize(
    ("sent", "like"),
    [
        ("openai/gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2099-01-01", "gpt-4o"),
        ("GPT-4O", "gpt-4o"),
        ("openai/gpt-4o:nitro", "gpt-4o"),
        ("ft:gpt-4o-mini-2024-07-18:acme::AbC", "gpt-4o-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("deepseek/deepseek-chat:free", "deepseek-chat"),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
    ],
)
def test_a_name_in_another_form_is_the_same_model(sent: str, like: str) -> None:
    assert shipped_map().look_up(like).facts.window is not None
    assert shipped_map().look_up(sent).facts == shipped_map().look_up(like).facts


@pytest.mark.parametrize(
    "sent", ["gpt-4omega", "my-model", "gpt-4o-custom", "somebody/gpt-4o", "gpt", "o1-x", ""]
)
def test_an_unknown_name_is_not_guessed(sent: str) -> None:
    assert shipped_map().look_up(sent) == NOTHING


@pytest.mark.parametrize("sent", ["claude-next", "gemini-99-ultra", "gpt-5-whatever", "deepseek-next"])
def test_a_new_member_of_a_family_has_what_all_share_but_no_window(sent: str) -> None:
    facts = shipped_map().look_up(sent).facts
    assert facts.window is facts.max_output is facts.excludes_answer is None
    assert facts.threshold is not None
    assert facts.retain_tokens is not None


def litellms_chat_models() -> dict[str, dict[str, object]]:
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).with_name("model_prices_and_context_window_backup.json")
    entries = json.loads(file.read_bytes())
    modes = ("chat", "responses", "completion")
    return {name: entry for name, entry in entries.items() if entry.get("mode") in modes}


def test_every_chat_model_of_litellms_map_is_found_as_itself() -> None:
    ours = set(shipped_map().names())
    checked = 0
    for name, entry in litellms_chat_models().items():
        if entry.get("max_input_tokens") and name not in ours:
            found = shipped_map().look_up(name)
            assert found.facts.window == entry["max_input_tokens"], name
            assert found.origins["window"] is Origin.LITELLM, name
            checked += 1
    assert checked > 2_900


# Any name, from any thread.


@given(st.text())
def test_any_text_is_looked_up_without_complaint_and_always_the_same(sent: str) -> None:
    found = shipped_map().look_up(sent)
    assert found == shipped_map().look_up(sent) == loaded_again().look_up(sent)


@cache
def loaded_again() -> ModelMap:
    return loaded()


@given(st.text(alphabet="qyzQ0189-./:@ ").map(lambda text: f"qz{text}"))
def test_a_name_in_no_layer_has_no_facts(sent: str) -> None:
    assert shipped_map().look_up(sent) == NOTHING


def test_a_name_longer_than_any_models_is_not_even_remembered() -> None:
    known = loaded({"*": ModelFacts(window=5)})
    assert known.look_up("x" * LONGEST).facts.window == 5
    assert known.look_up("x" * (LONGEST + 1)) == NOTHING


def test_loading_and_looking_up_from_many_threads_at_once() -> None:
    known = ModelMap({"mine": ModelFacts(window=5)})

    def use(number: int) -> tuple[int | None, int | None]:
        known.load()
        return known.look_up("gpt-4o").facts.window, known.look_up("mine").facts.window

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(64))) == {(128_000, 5)}


def test_a_broken_shipped_file_is_told_and_leaves_the_users_layer_in_place(tmp_path: Path) -> None:
    known = ModelMap({"mine": ModelFacts(window=5)}, written(tmp_path, "models: {gpt-4o: {windw: 5}}\n"))
    with pytest.raises(SettingsError, match=r"models\.gpt-4o: windw: unknown"):
        known.load()
    assert known.look_up("mine").facts.window == 5


def test_names_are_the_users_and_then_the_shipped_ones(tmp_path: Path) -> None:
    shipped = written(tmp_path, "models: {b-*: {factor: 2}, mine: {window: 5}}\n")
    known = ModelMap({"mine": ModelFacts(), "a": ModelFacts()}, shipped)
    assert known.names() == ["mine", "a"]
    known.load()
    assert known.names() == ["mine", "a", "b-*"]
