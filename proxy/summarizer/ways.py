"""Which way to the model that writes: the upstream with the caller's key, or its provider through litellm."""

from __future__ import annotations

import re
from enum import Enum
from urllib.parse import urlsplit

from proxy.settings import sections
from proxy.settings.sections import SummarizerVia
from proxy.summarizer.through_litellm import LitellmSummarizer
from proxy.summarizer.upstream import UpstreamSummarizer
from proxy.summarizer.wanted import Summarizer, Wanted, Written
from proxy.upstream import Upstream

# The name in `summarizer.model` for whichever model the conversation itself uses.
OWN = "own"

# Of litellm's providers those whose names stand before a model's for nobody else. Written down here, as
# asking litellm would be to import it. The others are for `via: litellm`, and some must not be called by
# mistake: github_copilot and chatgpt wait for somebody to log in.
PROVIDER = re.compile(
    "ai21|anthropic|azure|azure_ai|baseten|bedrock|cerebras|cloudflare|codestral|cohere|cohere_chat"
    "|dashscope|deepinfra|deepseek|featherless_ai|fireworks_ai|friendliai|gemini|github|gradient_ai|groq"
    "|heroku|hosted_vllm|huggingface|inception|lambda_ai|litellm_proxy|llamafile|lm_studio|meta_llama"
    "|mistral|moonshot|morph|nebius|novita|nscale|nvidia_nim|oci|ollama|ollama_chat|openai|openrouter"
    "|ovhcloud|perplexity|publicai|replicate|sagemaker|sagemaker_chat|sambanova|together_ai|v0"
    "|vercel_ai_gateway|vertex_ai|volcengine|wandb|watsonx|xai|zai"
)

# Their own models have names with a slash, and the part before it is a maker's.
_HAVE_SUCH_NAMES = (
    "ai-gateway.vercel.sh",
    "aimlapi.com",
    "api.inference.wandb.ai",
    "baseten.co",
    "chutes.ai",
    "deepinfra.com",
    "edenai.run",
    "featherless.ai",
    "fireworks.ai",
    "friendli.ai",
    "gateway.ai.cloudflare.com",
    "glama.ai",
    "gmi-serving.com",
    "groq.com",
    "helicone.ai",
    "huggingface.co",
    "hyperbolic.xyz",
    "inference.net",
    "kilo.ai",
    "models.github.ai",
    "nano-gpt.com",
    "nebius.ai",
    "nebius.com",
    "novita.ai",
    "nvidia.com",
    "openrouter.ai",
    "parasail.io",
    "portkey.ai",
    "publicai.co",
    "requesty.ai",
    "siliconflow.cn",
    "siliconflow.com",
    "together.ai",
    "together.xyz",
)
# OpenAI's open models are served by everybody but OpenAI, vLLM and LM Studio among them, by this name.
_OPEN = "openai/gpt-oss"


class Way(Enum):
    UPSTREAM = "upstream"
    LITELLM = "litellm"


def way_for(model: str | None, via: SummarizerVia, upstream: str) -> Way:
    """Without a name it is the conversation's own model, and that is the upstream's. In doubt it is the
    upstream too, which has seen the conversation anyway.
    """
    if model is None or via == "upstream":
        return Way.UPSTREAM
    if via == "litellm":
        return Way.LITELLM
    return Way.LITELLM if _names_a_provider(model) and not _has_such_names(upstream) else Way.UPSTREAM


def _names_a_provider(model: str) -> bool:
    provider, slash, rest = model.partition("/")
    return bool(slash and rest and PROVIDER.fullmatch(provider)) and not model.startswith(_OPEN)


def _has_such_names(upstream: str) -> bool:
    host = urlsplit(upstream).hostname or ""
    return any(host == known or host.endswith(f".{known}") for known in _HAVE_SUCH_NAMES)


def preferred_model(
    settings: sections.Summarizer, map_choice: str | None, *, by_user: bool = False
) -> str | None:
    """The model to ask first; None is the conversation's own. `map_choice` is the model map's, or what the
    user has said of this one model, which goes before what was said of all.
    """
    said = map_choice if by_user or settings.model is None else settings.model
    return None if said == OWN else said


def summarizer_for(settings: sections.Summarizer, upstream: Upstream, upstream_url: str) -> Summarizer:
    by_way: dict[Way, Summarizer] = {
        Way.UPSTREAM: UpstreamSummarizer(
            upstream, temperature=settings.temperature, timeout=settings.timeout
        ),
        Way.LITELLM: LitellmSummarizer(temperature=settings.temperature, timeout=settings.timeout),
    }
    return _ByWay(by_way, settings.via, upstream_url)


class _ByWay:
    """Each model in its way: the one for all that a setting names, or one of the model map's."""

    def __init__(self, by_way: dict[Way, Summarizer], via: SummarizerVia, upstream_url: str) -> None:
        self._by_way = by_way
        self._via = via
        self._upstream_url = upstream_url

    async def write(self, wanted: Wanted) -> Written:
        return await self._by_way[way_for(wanted.preferred, self._via, self._upstream_url)].write(wanted)
