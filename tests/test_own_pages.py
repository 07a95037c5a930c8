from __future__ import annotations

import orjson
import pytest
from aiohttp import ClientSession

from proxy.simulator import Simulator
from tests.raw import ask, request
from tests.running import Running, running
from tests.test_limits import code

TOKEN = {"Authorization": "Bearer correct-horse"}


async def test_health_says_who_is_there(tailfold: Running) -> None:
    answer = await ask(tailfold.port, request(path="/healthz"))
    assert answer.status == 200
    assert orjson.loads(answer.body)["name"] == "tailfold"


async def test_readiness_ends_with_the_drain(tailfold: Running) -> None:
    assert (await ask(tailfold.port, request(path="/readyz"))).status == 200
    tailfold.app.edge.draining = True
    assert (await ask(tailfold.port, request(path="/readyz"))).status == 503


async def test_metrics_are_open_while_there_is_no_token(tailfold: Running) -> None:
    answer = await ask(tailfold.port, request(path="/metrics"))
    assert answer.status == 200
    assert b"# HELP tailfold_requests_total" in answer.body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic correct-horse"}, 401),
        ({"Authorization": "Bearer \xe9"}, 401),
        (TOKEN, 200),
    ],
)
async def test_metrics_need_the_token_once_one_is_set(
    upstream: Simulator, headers: dict[str, str], status: int
) -> None:
    async with running(upstream.base_url, admin={"token": "correct-horse"}) as proxy, ClientSession() as web:
        async with web.get(f"{proxy.origin}/metrics", headers=headers) as answer:
            assert answer.status == status
        async with web.get(f"{proxy.origin}/healthz") as answer:
            assert answer.status == 200


async def test_metrics_may_be_left_open(upstream: Simulator) -> None:
    async with running(upstream.base_url, admin={"token": "x"}, metrics={"open": True}) as proxy:
        assert (await ask(proxy.port, request(path="/metrics"))).status == 200


async def test_the_page_is_served_with_a_strict_policy(tailfold: Running) -> None:
    answer = await ask(tailfold.port, request(path="/ui/"))
    assert b"Tailfold" in answer.body
    assert b"default-src 'none'" in answer.values(b"content-security-policy")[0]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("tailfold.example", 200),
        ("evil.example", 403),
        ("", 403),
        ("localhost.evil.example", 403),
    ],
)
async def test_the_page_answers_only_to_names_it_knows(upstream: Simulator, host: str, status: int) -> None:
    async with running(upstream.base_url, admin={"hosts": ["tailfold.example"]}) as proxy:
        answer = await ask(proxy.port, f"GET /ui/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer.status == status
        probe = await ask(proxy.port, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert probe.status == 200


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/models", "/chat/completions", "/ui", "/healthz/x"])
async def test_what_is_not_there_is_a_404_in_openais_shape(tailfold: Running, path: str) -> None:
    answer = await ask(tailfold.port, request(path=path))
    assert (answer.status, code(answer)) == (404, "not_found")
