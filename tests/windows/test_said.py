from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.windows import said
from proxy.windows.said import Said
from tests.windows import servers

Reader = Callable[[object, str], Said | None]

READERS: list[Reader] = [
    said.in_model_list,
    said.in_props,
    said.in_running_models,
    said.in_model_card,
    said.in_lm_studio,
    said.in_litellm,
]

WORDS: dict[str, tuple[Reader, object, str, Said | None]] = {
    "vllm": (
        said.in_model_list,
        servers.VLLM["/v1/models"],
        "meta-llama/Llama-3.1-8B-Instruct",
        Said(32768),
    ),
    "vllm, an adapter without a number": (said.in_model_list, servers.VLLM["/v1/models"], "my-lora", None),
    "vllm, another model": (said.in_model_list, servers.VLLM["/v1/models"], "gpt-4o", None),
    "sglang": (said.in_model_list, servers.SGLANG["/v1/models"], "Qwen/Qwen3-32B", Said(40960)),
    "sglang, under any name": (said.in_model_list, servers.SGLANG["/v1/models"], "default", Said(40960)),
    "llama.cpp": (said.in_model_list, servers.LLAMA_CPP["/v1/models"], "model.gguf", Said(8192)),
    "llama.cpp, under any name": (said.in_model_list, servers.LLAMA_CPP["/v1/models"], "gpt-4o", Said(8192)),
    "llama.cpp, only trained": (
        said.in_model_list,
        servers.LLAMA_CPP_OF_OLD["/v1/models"],
        "model.gguf",
        None,
    ),
    "llama.cpp's props": (said.in_props, servers.LLAMA_CPP_OF_OLD["/props"], "any", Said(1024)),
    "openrouter": (
        said.in_model_list,
        servers.OPENROUTER["/api/v1/models"],
        "deepseek/deepseek-chat-v3.1",
        Said(131072, 32768),
    ),
    "openrouter, by a way": (
        said.in_model_list,
        servers.OPENROUTER["/api/v1/models"],
        "deepseek/deepseek-chat-v3.1:nitro",
        Said(131072, 32768),
    ),
    "groq": (
        said.in_model_list,
        servers.GROQ["/openai/v1/models"],
        "llama-3.3-70b-versatile",
        Said(131072, 32768),
    ),
    "mistral, by an alias": (
        said.in_model_list,
        servers.MISTRAL["/v1/models"],
        "mistral-small-latest",
        Said(131072),
    ),
    "together": (said.in_model_list, servers.TOGETHER["/v1/models"], "moonshotai/Kimi-K2", Said(262144)),
    "a list of prompts' limits": (
        said.in_model_list,
        {"data": [{"id": "m", "max_input_tokens": 200000, "max_output_tokens": 64000}]},
        "m",
        Said(200000, 64000, excludes_answer=None),
    ),
    "lm studio's fields in the common list": (
        said.in_model_list,
        {"data": [{"id": "m", "state": "not-loaded", "max_context_length": 32768}]},
        "m",
        None,
    ),
    "ollama, loaded": (
        said.in_running_models,
        servers.OLLAMA_LOADED["/api/ps"],
        "llama3.1:latest",
        Said(4096),
    ),
    "ollama, by its short name": (
        said.in_running_models,
        servers.OLLAMA_LOADED["/api/ps"],
        "llama3.1",
        Said(4096),
    ),
    "ollama, another size": (
        said.in_running_models,
        servers.OLLAMA_LOADED["/api/ps"],
        "llama3.1:70b",
        None,
    ),
    "ollama, from a registry with a port": (
        said.in_running_models,
        {"models": [{"name": "hub:5000/me/m:latest", "context_length": 4096}]},
        "hub:5000/me/m",
        Said(4096),
    ),
    "ollama of old, without a number": (
        said.in_running_models,
        {"models": [{"name": "llama3.1:latest"}]},
        "llama3.1",
        None,
    ),
    "ollama's card": (
        said.in_model_card,
        servers.OLLAMA_WITH_NUM_CTX["/api/show"],
        "llama3.1",
        Said(16384),
    ),
    "ollama's card, only trained": (
        said.in_model_card,
        servers.OLLAMA_NOT_LOADED["/api/show"],
        "llama3.1",
        None,
    ),
    "ollama's card, more than was trained": (
        said.in_model_card,
        {"parameters": "num_ctx 999999", "model_info": {"llama.context_length": 8192}},
        "m",
        Said(8192),
    ),
    "lm studio, loaded": (said.in_lm_studio, servers.LM_STUDIO["/api/v0/models"], "qwen3-8b", Said(12288)),
    "lm studio, not loaded": (
        said.in_lm_studio,
        servers.LM_STUDIO["/api/v0/models"],
        "qwen2-vl-7b-instruct",
        None,
    ),
    "litellm, the smallest deployment": (
        said.in_litellm,
        servers.LITELLM["/model/info"],
        "gpt-5",
        Said(272000, 128000, excludes_answer=None),
    ),
    "litellm, another model": (said.in_litellm, servers.LITELLM["/model/info"], "gpt-4o", None),
}


@pytest.mark.parametrize(("reader", "body", "model", "meant"), WORDS.values(), ids=WORDS)
def test_each_server_is_understood_in_its_own_words(
    reader: Reader, body: object, model: str, meant: Said | None
) -> None:
    assert reader(body, model) == meant


def bodies_with(window: object) -> list[tuple[Reader, Any]]:
    return [
        (said.in_model_list, {"data": [{"id": "m", "max_model_len": window}]}),
        (said.in_model_list, {"data": [{"id": "m", "meta": {"n_ctx": window}}]}),
        (said.in_model_list, {"data": [{"id": "m", "top_provider": {"context_length": window}}]}),
        (said.in_model_list, {"data": [{"id": "m", "loaded_context_length": window}]}),
        (said.in_model_list, {"data": [{"id": "m", "max_input_tokens": window}]}),
        (said.in_props, {"default_generation_settings": {"n_ctx": window}}),
        (said.in_running_models, {"models": [{"name": "m", "context_length": window}]}),
        (said.in_lm_studio, {"data": [{"id": "m", "loaded_context_length": window}]}),
        (said.in_litellm, {"data": [{"model_name": "m", "model_info": {"max_input_tokens": window}}]}),
    ]


NO_WINDOWS: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    -4096,
    1,
    10**9,
    2**63,
    4096.0,
    float("nan"),
    "4096",
    "",
    [],
    [4096],
    {},
]


@pytest.mark.parametrize("window", NO_WINDOWS, ids=repr)
def test_what_is_no_number_of_tokens_is_not_taken_for_one(window: object) -> None:
    for reader, body in bodies_with(window):
        assert reader(body, "m") is None


def test_the_bodies_of_that_test_say_something_when_they_can() -> None:
    assert all(reader(body, "m") is not None for reader, body in bodies_with(4096))


@pytest.mark.parametrize("parameters", ["num_ctx x", "num_ctx -5", "xnum_ctx 4096", "num_ctx", 4096, None])
def test_parameters_of_a_card_that_set_nothing(parameters: object) -> None:
    assert said.in_model_card({"parameters": parameters, "model_info": 5}, "m") is None


KEYS = [
    *("data", "models", "id", "name", "aliases", "owned_by", "model_name", "state", "parameters"),
    *("meta", "n_ctx", "top_provider", "model_info", "default_generation_settings"),
    *("context_length", "max_model_len", "loaded_context_length", "max_input_tokens"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("m"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
)


@given(st.sampled_from(READERS), json_values)
@example(said.in_model_list, {"data": [{"owned_by": ["llamacpp"]}]})
def test_no_body_makes_a_reader_fail(reader: Reader, body: object) -> None:
    found = reader(body, "m")
    assert found is None or said.LEAST <= found.window <= said.MOST
