"""From a model's name as clients send it to the names to look it up by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.windows.names import LONGEST, names_for


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("gpt-4o", ["gpt-4o"]),
        ("GPT-4o", ["gpt-4o"]),
        (" gpt-4o\n", ["gpt-4o"]),
        ("openai/gpt-4o", ["openai/gpt-4o", "gpt-4o"]),
        ("azure/gpt-4o", ["azure/gpt-4o", "gpt-4o"]),
        ("azure/eu/gpt-5", ["azure/eu/gpt-5", "eu/gpt-5", "gpt-5"]),
        ("models/gemini-2.5-pro", ["models/gemini-2.5-pro", "gemini-2.5-pro"]),
        ("anthropic/claude-sonnet-4-5", ["anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"]),
        ("gpt-4o-2024-08-06", ["gpt-4o-2024-08-06", "gpt-4o"]),
        ("gpt-4-0613", ["gpt-4-0613", "gpt-4"]),
        ("claude-sonnet-4-5-20250929", ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5"]),
        ("claude-3-5-sonnet-latest", ["claude-3-5-sonnet-latest", "claude-3-5-sonnet"]),
        ("gemini-2.0-flash-001", ["gemini-2.0-flash-001", "gemini-2.0-flash"]),
        ("gemini-2.5-pro-preview-05-06", ["gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"]),
        ("gemini-2.5-flash-preview-09-2025", ["gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"]),
        (
            "ft:gpt-4o-mini-2024-07-18:acme::AbC",
            [
                "ft:gpt-4o-mini-2024-07-18:acme::abc",
                "ft:gpt-4o-mini-2024-07-18",
                "gpt-4o-mini-2024-07-18",
                "gpt-4o-mini",
            ],
        ),
        (
            "claude-3-5-sonnet@20240620",
            ["claude-3-5-sonnet@20240620", "claude-3-5-sonnet-20240620", "claude-3-5-sonnet"],
        ),
        ("claude-opus-4-6@default", ["claude-opus-4-6@default", "claude-opus-4-6"]),
        ("claude-3.5-sonnet", ["claude-3.5-sonnet", "claude-3-5-sonnet"]),
        ("claude-sonnet-4.5:beta", ["claude-sonnet-4.5:beta", "claude-sonnet-4.5", "claude-sonnet-4-5"]),
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            ["meta-llama/llama-3.1-8b-instruct", "llama-3.1-8b-instruct"],
        ),
    ],
)
def test_a_name_is_looked_up_ever_less_exactly(sent: str, expected: list[str]) -> None:
    assert list(names_for(sent)) == expected


@pytest.mark.parametrize(
    ("sent", "family"),
    [
        ("gpt-4o-2099-01-01", "gpt-4o"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai/ft:gpt-4o:acme", "gpt-4o"),
        ("openai/gpt-4o:nitro", "gpt-4o"),
        ("deepseek/deepseek-chat:free", "deepseek-chat"),
        ("openrouter/anthropic/claude-3.7-sonnet:thinking", "claude-3-7-sonnet"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("bedrock/us-gov-west-1/anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("vertex_ai/claude-3-5-haiku@20241022", "claude-3-5-haiku"),
        ("oci/openai.gpt-5", "gpt-5"),
    ],
)
def test_the_family_is_found_in_the_end(sent: str, family: str) -> None:
    assert names_for(sent)[-1] == family


def test_the_host_counts_more_than_the_release() -> None:
    names = names_for("github_copilot/gpt-5-mini-2025-08-07")
    assert names.index("github_copilot/gpt-5-mini") < names.index("gpt-5-mini-2025-08-07")


@pytest.mark.parametrize(
    "sent",
    [
        "gpt-4omega",
        "gpt-4o-custom",
        "gpt-4o-mini",
        "gpt-4.1",
        "my-model",
        "claude-next",
        "o1-preview",
        "gpt-4-1106-preview",
        "gemini-2.5-flash-preview-tts",
        "gpt-4o-2024-13-40",
        "mistral-large-2402",
        "llama3:8b",
        "somebody/gpt-4o",
        "my.gpt-4o",
        "claude-3-5-sonnet:extended",
    ],
)
def test_what_is_another_model_or_nobody_is_looked_up_as_it_is(sent: str) -> None:
    assert not {"gpt-4", "gpt-4o", "o1", "gemini-2.5-flash", "claude-3-5-sonnet"} & set(names_for(sent))
    assert names_for(sent)[0] == sent


@pytest.mark.parametrize("sent", ["", "  \n", "x" * (LONGEST + 1)])
def test_what_is_no_name_is_looked_up_by_none(sent: str) -> None:
    assert names_for(sent) == ()


_PIECES = st.sampled_from(
    [
        "openai/",
        "us.",
        "anthropic.",
        "ft:",
        "gpt-4o",
        "claude-3.5",
        ":free",
        "-2024-08-06",
        "-latest",
        "/",
        "@",
    ]
)


@given(st.text() | st.lists(_PIECES, max_size=60).map("".join))
def test_any_text_gives_names_without_repetition_and_begins_with_itself(sent: str) -> None:
    names = names_for(sent)
    assert names == names_for(sent)
    assert len(set(names)) == len(names)
    assert not names or names[0] == sent.strip().lower()
    assert all(names)
