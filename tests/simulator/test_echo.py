from __future__ import annotations

import base64
import hashlib
import io
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.simulator import Simulator


def wish(**described: Any) -> dict[str, str]:
    return {"x-sim-respond": orjson.dumps(described).decode()}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"])
async def test_says_exactly_what_was_received(
    sim: Simulator, http: aiohttp.ClientSession, method: str
) -> None:
    body = bytes(range(256))
    headers = [("X-Twice", "b"), ("x-other", "1"), ("X-Twice", "a"), ("x-latin", "caf\xe9")]
    url = f"{sim.base_url}/echo/some%2Fwhere?q=1&q=%20"
    async with http.request(method, url, data=body, headers=headers) as answer:
        said = await answer.json()
    assert said["method"] == method
    assert said["path"].endswith("?q=1&q=%20")
    assert base64.b64decode(said["body"]) == body
    assert said["body_sha256"] == hashlib.sha256(body).hexdigest()
    assert [value for name, value in said["headers"] if name == "X-Twice"] == ["b", "a"]


async def test_tells_connections_apart(sim: Simulator, http: aiohttp.ClientSession) -> None:
    numbers = []
    for _ in range(2):
        async with http.get(f"{sim.base_url}/echo") as answer:
            numbers.append((await answer.json())["connection"])
    async with http.get(f"{sim.base_url}/echo", headers={"connection": "close"}) as answer:
        await answer.read()
    async with http.get(f"{sim.base_url}/echo") as answer:
        numbers.append((await answer.json())["connection"])
    assert numbers == [1, 1, 2]
    assert sim.connections_opened == 2


async def test_gives_only_the_digest_of_a_large_body(sim: Simulator, http: aiohttp.ClientSession) -> None:
    body = b"large" * 4_000_000
    async with http.post(f"{sim.base_url}/echo", data=io.BytesIO(body)) as answer:
        said = await answer.json()
    assert (said["body"], said["body_length"]) == (None, len(body))
    assert said["body_sha256"] == hashlib.sha256(body).hexdigest()
    assert sim.requests[-1].body == body


@pytest.mark.parametrize("chunked", [False, True])
async def test_answers_as_the_request_describes(
    sim: Simulator, http: aiohttp.ClientSession, chunked: bool
) -> None:
    headers = wish(
        status=418,
        headers=[["x-a", "1"], ["X-A", "2"]],
        body=base64.b64encode(b"\x00teapot").decode(),
        chunked=chunked,
    )
    async with http.post(f"{sim.base_url}/echo", headers=headers) as answer:
        assert await answer.read() == b"\x00teapot"
    assert answer.status == 418
    assert answer.raw_headers[:2] == ((b"x-a", b"1"), (b"X-A", b"2"))
    assert ("Transfer-Encoding" in answer.headers) is chunked


async def test_answers_in_the_pieces_described(sim: Simulator, http: aiohttp.ClientSession) -> None:
    pieces = [b"one", b"", b"two"]
    described = [base64.b64encode(piece).decode() for piece in pieces]
    for framing in ("chunked", "close", "length"):
        headers = wish(pieces=described, framing=framing, trailers=[["x-end", "1"]])
        async with http.get(f"{sim.base_url}/echo", headers=headers) as answer:
            assert await answer.read() == b"onetwo"


async def test_refuses_a_wish_it_does_not_understand(sim: Simulator, http: aiohttp.ClientSession) -> None:
    for nonsense in ("{", "[]", '{"body": "*"}', '{"framing": "loose"}', '{"headers": [["x"]]}'):
        async with http.get(f"{sim.base_url}/echo", headers={"x-sim-respond": nonsense}) as answer:
            assert answer.status == 400, nonsense


@pytest.mark.parametrize("status", [204, 304])
async def test_some_statuses_have_no_body(sim: Simulator, http: aiohttp.ClientSession, status: int) -> None:
    for _ in range(2):
        async with http.get(f"{sim.base_url}/echo", headers=wish(status=status, body="eA==")) as answer:
            assert (answer.status, await answer.read()) == (status, b"")
    assert sim.connections_opened == 1
