"""Which way to the summary model is known from its name, and a client's own words never choose a provider."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from proxy.settings.sections import Summarizer as Settings
from proxy.settings.sections import SummarizerVia
from proxy.simulator import Simulator
from proxy.summarizer import Wanted, Way, preferred_model, summarizer_for, way_for
from proxy.summarizer.ways import PROVIDER
from tests.summarizer.upstreams import upstream_at

OPENAI = "https://api.openai.com/v1"
LOCAL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("model", ["anthropic/claude-haiku-4-5", "groq/openai/gpt-oss-20b", "openai/o3"])
@pytest.mark.parametrize("upstream", [OPENAI, LOCAL, "https://notopenrouter.ai/v1"])
def test_a_providers_name_before_a_model_leads_to_it(model: str, upstream: str) -> None:
    assert way_for(model, "auto", upstream) is Way.LITELLM


@pytest.mark.parametrize(
    "model",
    [
        None,
        "gpt-4o-mini",
        "anthropic/",
        "meta-llama/Llama-3.3-70B",
        "mistralai/Mistral-7B",
        "openai/gpt-oss-20b",
    ],
)
def test_every_other_name_is_the_upstreams(model: str | None) -> None:
    assert way_for(model, "auto", LOCAL) is Way.UPSTREAM


@pytest.mark.parametrize(
    "upstream",
    [
        "https://openrouter.ai/api/v1",
        "https://router.huggingface.co/v1",
        "https://api.groq.com/openai/v1",
        "https://API.Together.xyz/v1",
        "https://integrate.api.nvidia.com/v1",
        "https://ai-gateway.vercel.sh/v1",
    ],
)
def test_an_upstream_that_has_such_names_itself_keeps_them(upstream: str) -> None:
    assert way_for("anthropic/claude-haiku-4-5", "auto", upstream) is Way.UPSTREAM


@pytest.mark.parametrize("model", ["gpt-4o-mini", "anthropic/claude-haiku-4-5"])
@pytest.mark.parametrize(("via", "way"), [("upstream", Way.UPSTREAM), ("litellm", Way.LITELLM)])
def test_a_setting_decides_over_any_name(model: str, via: SummarizerVia, way: Way) -> None:
    for upstream in (OPENAI, "https://openrouter.ai/api/v1"):
        assert way_for(model, via, upstream) is way


def test_the_conversations_own_model_is_never_asked_through_litellm() -> None:
    assert way_for(None, "litellm", OPENAI) is Way.UPSTREAM


def test_the_setting_goes_before_the_map_and_own_is_the_conversations() -> None:
    assert preferred_model(Settings(), "gpt-4o-mini") == "gpt-4o-mini"
    assert preferred_model(Settings(), None) is None
    assert preferred_model(Settings(model="small"), "gpt-4o-mini") == "small"
    assert preferred_model(Settings(model="own"), "gpt-4o-mini") is None


async def test_what_has_no_provider_before_it_is_asked_of_the_upstream_with_the_callers_key() -> None:
    async with Simulator() as sim:
        upstream = upstream_at(sim.port)
        asking = summarizer_for(Settings(), upstream, sim.base_url)
        credentials = [(b"Authorization", b"Bearer sk-caller")]
        messages = b'[{"role":"user","content":"sum up"}]'
        written = await asking.write(Wanted(messages, 30, 200, "gpt-4o", "gpt-4o-mini", credentials))
        upstream.close()
    assert written.model == "gpt-4o-mini"
    assert [request.header("authorization") for request in sim.requests] == ["Bearer sk-caller"]


def test_litellm_knows_every_provider_that_we_say_it_does() -> None:
    # Read and not imported, which would take seconds.
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    tree = ast.parse(Path(found.origin).with_name("constants.py").read_text())
    lists = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
    }
    known: set[str] = set()
    for name in ("LITELLM_CHAT_PROVIDERS", "openai_compatible_providers"):
        known |= set(ast.literal_eval(lists[name]))
    assert set(PROVIDER.pattern.split("|")) <= known
