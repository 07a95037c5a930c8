"""What a client finds in its environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from proxy.cli.client_environment import client_environment
from tests.cli.upstream import listening_upstream

URL = "http://127.0.0.1:9/v1"
OURS = "X-Conversation-Id: run-1"


def headers_after(given: str | None) -> str:
    before = {} if given is None else {"OPENAI_CUSTOM_HEADERS": given}
    return client_environment(before, URL, "run-1")["OPENAI_CUSTOM_HEADERS"]


def test_both_variables_point_at_the_proxy_and_the_rest_stays() -> None:
    before = {"HOME": "/h", "OPENAI_BASE_URL": "http://elsewhere/v1", "OPENAI_API_KEY": "k"}
    assert client_environment(before, URL, "run-1") == {
        "HOME": "/h",
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": URL,
        "OPENAI_API_BASE": URL,
        "OPENAI_CUSTOM_HEADERS": OURS,
    }


@pytest.mark.parametrize("given", [None, "", "\n"])
def test_the_conversation_is_named(given: str | None) -> None:
    assert headers_after(given) == OURS


def test_the_users_own_headers_come_first_and_stay() -> None:
    assert headers_after("X-Team: a\nX-Cost: b: c\n") == f"X-Team: a\nX-Cost: b: c\n{OURS}"


@pytest.mark.parametrize(
    "given", ["x-conversation-id: mine", "HEADER_A=VALUE_A,HEADER_B=http://b", "A=b", "X-Team: a\nnonsense"]
)
def test_a_conversation_of_the_users_own_or_another_format_is_left_alone(given: str) -> None:
    assert headers_after(given) == given


def test_behind_an_http_proxy_the_way_to_this_machine_stays_direct() -> None:
    after = client_environment({"HTTP_PROXY": "http://corp:3128", "NO_PROXY": "intra.net"}, URL, "c")
    assert after["NO_PROXY"] == after["no_proxy"] == "intra.net,127.0.0.1,localhost"
    assert "NO_PROXY" not in client_environment({}, URL, "c")


def test_who_avoids_http_proxies_altogether_is_left_alone() -> None:
    after = client_environment({"ALL_PROXY": "http://corp:3128", "no_proxy": "*"}, URL, "c")
    assert after["no_proxy"] == "*"
    assert "NO_PROXY" not in after


def test_the_real_sdk_sends_the_conversation_to_the_proxy() -> None:
    script = "import openai; openai.OpenAI(api_key='k', max_retries=0).models.list()"
    with listening_upstream() as listener:
        before = {**os.environ, "OPENAI_CUSTOM_HEADERS": "X-Team: a"}
        environ = client_environment(before, listener.url, "run-42")
        subprocess.run([sys.executable, "-c", script], env=environ, check=True, timeout=60)
    [request] = listener.seen
    assert request.path == "/v1/models"
    assert (request.headers["x-conversation-id"], request.headers["x-team"]) == ("run-42", "a")
