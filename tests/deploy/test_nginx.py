"""The real nginx with the real configuration, before two replicas: it passes on what comes as it comes."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from proxy.settings import Settings
from proxy.simulator import Answer, Ending, Fault, Simulator
from tests.deploy.tools import DEPLOY, accepts, tool
from tests.running import Running, running
from tests.sdk_support import CHUNKED_STREAM, PATIENCE, delta, framed
from tests.simulator.talk import chat, user

CONFIGURATION = (DEPLOY / "compose/nginx.conf").read_text()
CHAT = "v1/chat/completions"
HELLO = chat(user("hello"))
STREAM = {**HELLO, "stream": True}


def moved(folder: Path, port: int, *replicas: int) -> Path:
    """The configuration with addresses of this test. Not every nginx knows `resolve` yet."""
    [named] = re.findall(r"^ *server proxy:8080 resolve (.*;)$", CONFIGURATION, re.MULTILINE)
    servers = "".join(f"server 127.0.0.1:{replica} {named}\n" for replica in replicas)
    text = CONFIGURATION.replace(f"server proxy:8080 resolve {named}", servers)
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("/tmp/", f"{folder}/")
    file = folder / "nginx.conf"
    file.write_text(text)
    return file


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


@asynccontextmanager
async def nginx(folder: Path, *replicas: int) -> AsyncIterator[str]:
    port = free_port()
    file = moved(folder, port, *replicas)
    # In the foreground; and where root runs the tests, workers of another user could not read the folder.
    directives = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    process = await asyncio.create_subprocess_exec(
        *(tool("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(file), "-g", directives),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await listens(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def listens(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


@pytest.fixture
async def replicas(upstream: Simulator) -> AsyncIterator[tuple[Running, Running]]:
    async with running(upstream.base_url) as one, running(upstream.base_url) as other:
        yield one, other


@pytest.fixture
async def url(replicas: tuple[Running, Running], tmp_path: Path) -> AsyncIterator[str]:
    async with nginx(tmp_path, *(replica.port for replica in replicas)) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    limit = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(f"{url}/", timeout=limit) as session:
        yield session


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    said = accepts("nginx", "-t", "-e", "stderr", "-c", moved(tmp_path, 8080, 1, 2))
    assert "warn" not in said.replace('the "user" directive', "")


def test_nginx_waits_longer_than_tailfold() -> None:
    timeouts = Settings().timeouts
    assert seconds("proxy_read_timeout") > max(timeouts.first_byte, timeouts.idle)
    assert seconds("proxy_send_timeout") > max(timeouts.first_byte, timeouts.idle)
    assert seconds("client_body_timeout") > timeouts.body


def test_connections_that_wait_are_given_up_before_tailfold_closes_them() -> None:
    assert "        keepalive_timeout 60s;" in CONFIGURATION
    assert Settings().timeouts.keepalive > 60


def seconds(directive: str) -> float:
    [value] = re.findall(rf"^ *{directive} (\d+)s;", CONFIGURATION, re.MULTILINE)
    return float(value)


async def test_requests_go_to_both_replicas(
    http: aiohttp.ClientSession, replicas: tuple[Running, Running]
) -> None:
    for _ in range(8):
        async with http.post(CHAT, json=HELLO) as answer:
            assert answer.status == 200
            assert answer.headers["X-Accel-Buffering"] == "no"
    counted = [replica.metric("tailfold_requests_total", route="chat") for replica in replicas]
    assert sum(counted) == 8
    assert min(counted) > 0


async def test_pieces_arrive_while_the_answer_is_still_being_made(
    http: aiohttp.ClientSession, upstream: Simulator
) -> None:
    piece = delta("a few words")
    upstream.perform_next((CHUNKED_STREAM, framed(piece), Ending.HANG))
    async with http.post(CHAT, json=STREAM) as answer:
        assert await answer.content.readexactly(len(piece)) == piece
        assert upstream.active == 1


async def test_an_answer_waits_for_a_client_that_reads_slowly_and_is_kept_nowhere_meanwhile(
    http: aiohttp.ClientSession, upstream: Simulator
) -> None:
    # Far more than the sockets on the way hold together.
    upstream.answer_next(Answer(200, (), (bytes(2**20),) * 96))
    async with http.get("v1/files/large/content") as answer:
        await asyncio.sleep(1)
        assert upstream.active == 1
        assert len(await answer.read()) == 96 * 2**20


async def test_a_client_that_leaves_ends_the_providers_work(
    http: aiohttp.ClientSession, upstream: Simulator
) -> None:
    upstream.fail_next(Fault.HANG_MID_STREAM)
    async with http.post(CHAT, json=STREAM) as answer:
        await answer.content.readany()
    await upstream.wait_until(lambda: upstream.cancelled == 1)


@pytest.mark.parametrize("fault", [Fault.RESET_MID_CHUNK, Fault.TRUNCATED_BODY])
async def test_a_stream_that_breaks_is_never_taken_for_whole(
    http: aiohttp.ClientSession, upstream: Simulator, fault: Fault
) -> None:
    upstream.fail_next(fault)
    async with http.post(CHAT, json=STREAM) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_an_upload_that_is_larger_than_nginx_would_take_arrives_whole(
    http: aiohttp.ClientSession, upstream: Simulator
) -> None:
    body = os.urandom(3 * 2**20)
    async with http.post("v1/audio/whatever", data=io.BytesIO(body)) as answer:
        await answer.read()
    [request] = upstream.requests
    assert request.body_sha256 == sha256(body).hexdigest()


async def test_an_upload_begins_to_arrive_before_it_has_been_sent(url: str, upstream: Simulator) -> None:
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
    writer.write(b"x" * 50_000)
    await upstream.wait_until(lambda: upstream.active == 1)
    writer.write(b"x" * 50_000)
    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    writer.close()


async def test_headers_with_underscores_arrive(http: aiohttp.ClientSession) -> None:
    async with http.post(CHAT, json=HELLO, headers={"session_id": "a-conversation"}) as answer:
        assert answer.headers["X-Conversation-Source"] == "client"


async def test_a_path_arrives_as_it_was_spelled(http: aiohttp.ClientSession, upstream: Simulator) -> None:
    async with http.get("v1/models//a%2Fb?x=%20&y") as answer:
        await answer.read()
    [request] = upstream.requests
    assert request.path == "/v1/models//a%2Fb?x=%20&y"


async def test_the_providers_answer_does_not_steer_nginx(
    http: aiohttp.ClientSession, upstream: Simulator
) -> None:
    headers = (("X-Accel-Redirect", "/metrics"), ("X-Accel-Buffering", "yes"), ("X-Accel-Limit-Rate", "1"))
    upstream.answer_next(Answer(200, headers, (b"as it was said",)))
    async with http.get("v1/models") as answer:
        assert (answer.status, await answer.read()) == (200, b"as it was said")


async def test_tailfolds_own_errors_stay_its_own(http: aiohttp.ClientSession, upstream: Simulator) -> None:
    upstream.fail_next(Fault.DISCONNECT_BEFORE_HEADERS)
    async with http.post(CHAT, json=HELLO) as answer:
        assert answer.status == 502
        assert (await answer.json())["error"]["code"] == "upstream_disconnected"


async def test_the_probes_are_let_through_and_the_metrics_of_some_replica_are_not(
    http: aiohttp.ClientSession,
) -> None:
    statuses = {}
    for path in ("healthz", "readyz", "metrics"):
        async with http.get(path) as answer:
            statuses[path] = answer.status
    assert statuses == {"healthz": 200, "readyz": 200, "metrics": 404}


async def test_a_replica_that_is_gone_is_passed_over(
    http: aiohttp.ClientSession, replicas: tuple[Running, Running], upstream: Simulator
) -> None:
    await replicas[0].app.drain()
    for _ in range(6):
        async with http.post(CHAT, json=HELLO) as answer:
            assert answer.status == 200
    assert len(upstream.chat_calls()) == 6


async def test_without_any_replica_there_is_an_error_that_clients_can_read(tmp_path: Path) -> None:
    async with (
        nginx(tmp_path, free_port(), free_port()) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/{CHAT}", json=HELLO) as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert (await answer.json())["error"]["code"] == "no_replica"
