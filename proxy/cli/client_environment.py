"""The environment in which an OpenAI client finds Tailfold."""

from __future__ import annotations

import re
from collections.abc import Mapping

# OpenAI's SDKs read the first, LangChain and older SDKs the second; where both are set, the first counts.
CLIENT_URL_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")

# OpenAI's SDKs for Python and Node read one `Name: value` per line from it. Goose reads `NAME=value,...`
# from the same variable, passes over what is not of that form, and must not have its own value spoilt.
HEADERS_VARIABLE = "OPENAI_CUSTOM_HEADERS"
CONVERSATION_HEADER = "X-Conversation-Id"

_HEADER_LINE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\s*:.*")


def client_environment(environ: Mapping[str, str], base_url: str, conversation: str) -> dict[str, str]:
    return {
        **environ,
        **dict.fromkeys(CLIENT_URL_VARIABLES, base_url),
        HEADERS_VARIABLE: _with_conversation(environ.get(HEADERS_VARIABLE, ""), conversation),
        **_past_http_proxies(environ),
    }


def _with_conversation(headers: str, conversation: str) -> str:
    """The user's own headers stay as they are; ours is added only where it fits and is not there yet."""
    lines = [line for line in headers.splitlines() if line.strip()]
    if not all(_HEADER_LINE.fullmatch(line.strip()) for line in lines):
        return headers
    if any(line.partition(":")[0].strip().lower() == CONVERSATION_HEADER.lower() for line in lines):
        return headers
    return "\n".join([*lines, f"{CONVERSATION_HEADER}: {conversation}"])


def _past_http_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Behind a company's HTTP proxy a client would look for 127.0.0.1 on that machine, not on this one."""
    if not any(environ.get(name) for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")):
        return {}
    given = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    names = [name for name in given.split(",") if name.strip()]
    if "*" in names:
        return {}
    joined = ",".join([*names, *(name for name in ("127.0.0.1", "localhost") if name not in names)])
    return {"no_proxy": joined, "NO_PROXY": joined}
