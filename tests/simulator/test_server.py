from __future__ import annotations

import asyncio
import gzip
import ssl

import aiohttp
import pytest
import trustme
from openai import AsyncOpenAI, AuthenticationError, NotFoundError

from proxy.simulator import Answer, Ending, Fault, Pause, Simulator, SimulatorConfig
from tests.simulator.talk import chat, user


async def raw_exchange(sim: Simulator, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


async def test_lists_its_models(openai: AsyncOpenAI) -> None:
    assert "gpt-4o" in [model.id async for model in openai.models.list()]
    assert (await openai.models.retrieve("gpt-4o")).object == "model"
    with pytest.raises(NotFoundError, match="The model `org/none` does not exist"):
        await openai.models.retrieve("org/none")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/nonsense", b"{}", 404),
        ("DELETE", "/models", b"", 405),
        ("POST", "/chat/completions", b"{", 400),
        ("POST", "/chat/completions", b"", 400),
        ("POST", "/chat/completions", b"\xff\xfe", 400),
        ("POST", "/chat/completions", b"null", 400),
    ],
)
async def test_refuses_in_openais_shape(
    sim: Simulator, http: aiohttp.ClientSession, method: str, path: str, body: bytes, status: int
) -> None:
    async with http.request(method, sim.base_url + path, data=body) as answer:
        assert answer.status == status
        error = (await answer.json())["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


async def test_refuses_broken_compression(sim: Simulator, http: aiohttp.ClientSession) -> None:
    url = f"{sim.base_url}/chat/completions"
    for body in (b"not gzip", gzip.compress(b"{}")[:-3]):
        async with http.post(url, data=body, headers={"content-encoding": "gzip"}) as answer:
            assert answer.status == 400


async def test_refuses_a_body_larger_than_it_takes(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(memory_limit=1000, max_body=2000)) as sim:
        async with http.post(f"{sim.base_url}/echo", data=b"x" * 1500) as answer:
            assert answer.status == 200
        async with http.post(f"{sim.base_url}/echo", data=b"x" * 2500) as answer:
            assert answer.status == 413


async def test_wants_its_own_key_when_it_has_one() -> None:
    async with Simulator(SimulatorConfig(api_key="sk-right")) as sim:
        async with AsyncOpenAI(base_url=sim.base_url, api_key="sk-wrong", max_retries=0) as client:
            with pytest.raises(AuthenticationError) as refused:
                await client.models.list()
            assert refused.value.code == "invalid_api_key"
        async with AsyncOpenAI(base_url=sim.base_url, api_key="sk-right", max_retries=0) as client:
            assert await client.models.list()


async def test_every_answer_has_a_request_id_of_its_own(sim: Simulator, http: aiohttp.ClientSession) -> None:
    ids = set()
    for path in ("models", "nonsense"):
        async with http.get(f"{sim.base_url}/{path}") as answer:
            ids.add(answer.headers["x-request-id"])
    assert len(ids) == 2


async def test_head_is_get_without_the_body(sim: Simulator, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sim.base_url}/models") as got:
        await got.read()
    async with http.head(f"{sim.base_url}/models") as answer:
        assert answer.headers["content-length"] == got.headers["content-length"]
        assert await answer.read() == b""
    assert sim.connections_opened == 1


async def test_an_old_client_gets_a_stream_without_chunks(sim: Simulator) -> None:
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    head = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
    answer = await raw_exchange(sim, head + body)
    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"data: [DONE]\n\n")


async def test_invites_a_client_that_waits_to_be_asked(sim: Simulator) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    writer.write(b"POST /v1/echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert await asyncio.wait_for(reader.readline(), 5) == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_speaks_tls() -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with Simulator(ssl_context=server) as sim:
        assert sim.base_url.startswith("https://")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client)) as session:
            async with session.get(f"{sim.base_url}/models") as answer:
                assert answer.status == 200
            sim.fail_next(Fault.RESET_MID_CHUNK)
            async with session.get(f"{sim.base_url}/models") as answer:
                with pytest.raises(aiohttp.ClientError):
                    await answer.read()


async def test_gives_exactly_the_answer_it_was_told(sim: Simulator, http: aiohttp.ClientSession) -> None:
    sim.answer_next(Answer(503, (("x-why", "tired"),), (b"zzz",)))
    async with http.get(f"{sim.base_url}/models") as answer:
        assert (answer.status, await answer.read()) == (503, b"zzz")
    assert answer.raw_headers == ((b"x-why", b"tired"), (b"content-length", b"3"))


async def test_performs_bytes_pauses_and_endings(sim: Simulator) -> None:
    steps = (b"HTTP/1.1 200 OK\r\n", Pause(0.01), b"content-length: 9\r\n\r\nbr", Ending.CLOSE)
    sim.perform_next(steps)
    answer = await raw_exchange(sim, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbr"


async def test_can_drop_idle_connections(sim: Simulator, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sim.base_url}/models") as answer:
        await answer.read()
    assert sim.connections_open == 1
    sim.drop_connections()
    async with http.get(f"{sim.base_url}/models") as answer:
        assert answer.status == 200
    assert sim.connections_opened == 2


async def test_delays_between_chunks(http: aiohttp.ClientSession) -> None:
    async with Simulator(SimulatorConfig(chunk_delay=0.02)) as sim:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        body = chat(user("one two three four five"), stream=True)
        async with http.post(f"{sim.base_url}/chat/completions", json=body) as answer:
            await answer.read()
        assert loop.time() - begun > 0.02 * 5
