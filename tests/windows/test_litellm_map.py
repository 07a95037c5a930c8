"""litellm's model map, read from its package data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.windows.facts import ModelFacts
from proxy.windows.litellm_map import LitellmMap, known_names, litellm_map, read


def written(folder: Path, **entries: object) -> LitellmMap:
    file = folder / "map.json"
    file.write_text(json.dumps(entries))
    return read(file)


def model(**limits: object) -> dict[str, object]:
    return {"mode": "chat", "litellm_provider": "somebody", **limits}


def test_the_installed_map_knows_thousands_of_models() -> None:
    assert len(known_names()) > 4000
    assert {"gpt-4o", "text-embedding-3-small", "anyscale/HuggingFaceH4/zephyr-7b-beta"} <= known_names()
    assert not {"sample_spec", "fallback_generalizations"} & known_names()
    assert litellm_map() is litellm_map()


def test_reading_it_does_not_import_litellm() -> None:
    code = (
        "import sys; from proxy.windows.litellm_map import known_names; known_names(); "
        "print('litellm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4o", ModelFacts(128_000, None, 16_384)),
        ("gpt-4o-2024-05-13", ModelFacts(128_000, None, 4_096)),
        ("gpt-5", ModelFacts(272_000, True, 128_000)),
        ("azure/gpt-5.1-chat", ModelFacts(111_616, True, 16_384)),
        ("claude-opus-4-6", ModelFacts(1_000_000, None, 128_000)),
        ("gemini/gemini-2.5-flash", ModelFacts(1_048_576, True, 65_536)),
        ("anyscale/huggingfaceh4/zephyr-7b-beta", ModelFacts(16_384, None, 16_384)),
        ("xai/grok-4.3", ModelFacts(1_000_000, None, 1_000_000)),
        ("grok-4.3", ModelFacts(1_000_000, None, 1_000_000)),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", ModelFacts(131_072, None, 16_384)),
        ("gpt-5.5-cyber", ModelFacts()),
        ("text-embedding-3-small", None),
        ("dall-e-3", None),
        ("nobody", None),
    ],
)
def test_what_it_says_of_models(name: str, expected: ModelFacts | None) -> None:
    assert litellm_map().facts(name) == expected


def test_max_tokens_is_the_longest_answer_and_never_the_window(tmp_path: Path) -> None:
    known = written(tmp_path, a=model(max_tokens=4096), b=model(max_tokens=4096, max_output_tokens=1024))
    assert known.facts("a") == ModelFacts(max_output=4096)
    assert known.facts("b") == ModelFacts(max_output=1024)


@pytest.mark.parametrize("odd", [0, -5, "8192", 8192.0, True, None, [1], {}])
def test_what_is_no_number_of_tokens_has_not_been_said(tmp_path: Path, odd: object) -> None:
    known = written(tmp_path, odd=model(max_input_tokens=odd), sound=model(max_input_tokens=8192))
    assert known.facts("odd") == ModelFacts()
    assert known.facts("sound") == ModelFacts(window=8192)


@pytest.mark.parametrize("mode", ["chat", "responses", "completion"])
def test_facts_are_of_models_that_take_a_conversation(tmp_path: Path, mode: str) -> None:
    known = written(tmp_path, it={"mode": mode}, other={"mode": "embedding"}, unknown={}, odd={"mode": 7})
    assert known.facts("it") == ModelFacts()
    assert [known.facts(name) for name in ("other", "unknown", "odd")] == [None, None, None]
    assert known.names == {"it", "other", "unknown", "odd"}


def test_a_makers_model_is_found_without_the_prefix_too(tmp_path: Path) -> None:
    known = written(
        tmp_path,
        **{
            "mistral/mistral-large-latest": model(max_input_tokens=1),
            "mistral/zai-glm-5": model(max_input_tokens=2),  # made by another
            "perplexity/openai/gpt-5": model(max_input_tokens=3),
            "xai/grok-9": model(max_input_tokens=4),
            "grok-9": model(max_input_tokens=5),  # an entry of its own counts more
        },
    )
    assert known.facts("mistral-large-latest") == ModelFacts(window=1)
    assert known.facts("zai-glm-5") is None
    assert known.facts("openai/gpt-5") is None
    assert known.facts("grok-9") == ModelFacts(window=5)


@pytest.mark.parametrize(
    ("window", "answer", "excludes"),
    [
        (272_000, 128_000, True),  # gpt-5: of 400,000
        (922_000, 128_000, True),  # gpt-5.6: of 1,050,000
        (111_616, 16_384, True),  # gpt-5.1-chat on Azure: of 128,000
        (400_000, 128_000, None),
        (128_000, 16_384, None),
        (200_000, 100_000, None),
        (65_536, 65_536, None),  # twice a window is a window, too
        (120_000, 8_000, None),  # chance
        (272_000, None, None),
    ],
)
def test_a_prompts_part_is_told_from_a_window(
    tmp_path: Path, window: int, answer: int | None, excludes: bool | None
) -> None:
    known = written(tmp_path, it=model(max_input_tokens=window, max_output_tokens=answer))
    assert known.facts("it") == ModelFacts(window, excludes, answer)


def test_the_rule_finds_the_prompts_parts_of_the_installed_map_and_nothing_else() -> None:
    known = [litellm_map().facts(name.lower()) for name in known_names() if "gemini" not in name]
    parts = {(facts.window, facts.max_output) for facts in known if facts and facts.excludes_answer}
    assert parts == {
        (272_000, 128_000),
        (922_000, 128_000),
        (111_616, 16_384),
        (98_304, 32_768),  # of 131,072: DeepSeek on Volcengine
        (229_376, 32_768),  # of 262,144: Kimi on Volcengine
        (917_504, 131_072),  # of 1,048,576: Kimi on Copilot
    }


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"gpt-4o": 5}', b'{"gpt-4o": {"mode": "chat"', b'{"\xff": {}}', b"\x00\xff"]
)
def test_a_damaged_file_is_an_empty_map_and_one_warning(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "map.json"
    file.write_bytes(content)
    with capture_logs() as lines:
        known = read(file)
    assert known.names == frozenset()
    assert known.facts("gpt-4o") is None
    assert [line["log_level"] for line in lines] == ["warning"]


@pytest.mark.parametrize("missing", [None, Path("no") / "such" / "file.json"])
def test_a_missing_file_is_an_empty_map_and_one_warning(missing: Path | None) -> None:
    with capture_logs() as lines:
        assert read(missing).names == frozenset()
    assert [line["log_level"] for line in lines] == ["warning"]
