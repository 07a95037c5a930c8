"""Under which names a model may be known: as it was sent, then ever less exactly, and never by a guess."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Longer than any model's name. What is longer is known under no name, so it is neither searched nor kept.
LONGEST = 256

# Who may stand before a model's name, as `openai/gpt-4o` or `openrouter/anthropic/claude-sonnet-4.5`. What
# stands there and is not known here may be anything, also something that serves its own model by that name.
_HOST = re.compile(
    # makers, by the names that others have for them
    "openai|anthropic|google|gemini|deepseek|deepseek-ai|meta-llama|mistral|mistralai|moonshot|moonshotai"
    "|xai|x-ai|zai|z-ai"
    # who serves models of others, and what stands between that name and the model's
    "|azure|azure_ai|bedrock|bedrock_converse|converse|invoke|vertex_ai|models|cerebras|databricks|deepinfra"
    "|fireworks_ai|gmi|groq|heroku|oci|perplexity|replicate|snowflake|together_ai"
    # routers
    "|aihubmix|github_copilot|litellm_proxy|openrouter|vercel_ai_gateway"
    # regions, as in azure/eu/gpt-5
    "|us|us-gov|eu|global|global-standard|[a-z]{2}(?:-gov)?-[a-z]+-[0-9]"
)
# Bedrock's and Oracle's way of saying the same: `us.anthropic.claude-…`, `openai.gpt-…`.
_DOTTED = re.compile("us|us-gov|eu|apac|au|ca|jp|global|anthropic|google|openai")

_MONTH, _DAY = "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"

# Each takes away what does not change which model it is, or only which of its releases. `-preview` and
# `-mini` are not among them, for they do: o1-preview has another window than o1.
_LESS_EXACT = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # OpenRouter's ways of routing; not `:extended`, which is another window.
        (r":(?:free|nitro|floor|online|beta|thinking|exacto)\Z", ""),
        (r"((?:\A|/)ft:[^:]+):.*\Z", r"\1"),  # ft:<model>:<whose>:<name>:<id>
        (r"(\A|/)ft:([^:]+)\Z", r"\1\2"),
        (r"(claude-.+)-v[0-9]+(?::[0-9]+)?\Z", r"\1"),  # Bedrock
        (r"@([0-9]{8})\Z", r"-\1"),  # Vertex
        (r"@(?:default|latest)\Z", ""),
        (r"(claude-[a-z-]*[0-9])\.([0-9])", r"\1-\2"),  # OpenRouter writes claude-3.5-sonnet
        (rf"-20[0-9]{{2}}-{_MONTH}-{_DAY}\Z", ""),
        (rf"-20[0-9]{{2}}{_MONTH}{_DAY}\Z", ""),
        # Month and day alone is OpenAI's way; elsewhere four digits are as often year and month.
        (rf"(gpt-.+)-{_MONTH}{_DAY}\Z", r"\1"),
        (rf"(gemini-.+)-preview-{_MONTH}-(?:{_DAY}|20[0-9]{{2}})\Z", r"\1"),
        (r"(gemini-.+)-00[0-9]\Z", r"\1"),
        (r"-latest\Z", ""),
    )
]


def names_for(model: str) -> tuple[str, ...]:
    """In lower case, the most exact first. The host counts more than the release: it may cut the window."""
    sent = model.strip().lower()
    if not sent or len(sent) > LONGEST:
        return ()
    names = (name for hosted in _ever_barer(sent) for name in _ever_less_exact(hosted))
    return tuple(dict.fromkeys(names))


def _ever_barer(name: str) -> Iterator[str]:
    while name:
        yield name
        name = _without_host(name)


def _without_host(name: str) -> str:
    host, slash, rest = name.partition("/")
    if slash:
        return rest if _HOST.fullmatch(host) else ""
    vendor, _, rest = name.partition(".")
    return rest if _DOTTED.fullmatch(vendor) else ""


def _ever_less_exact(name: str) -> Iterator[str]:
    yield name
    for pattern, replacement in _LESS_EXACT:
        shorter = pattern.sub(replacement, name)
        if shorter and shorter != name:
            yield shorter
            name = shorter
