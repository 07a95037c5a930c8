"""Slow, large and many: refused clearly, and never at the cost of others."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from proxy.simulator import Fault, Simulator
from tests.raw import Message, ask, request, wire
from tests.running import Running, running

CHAT = b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}'


def code(answer: Message) -> str:
    error = orjson.loads(answer.body)["error"]
    assert error["type"] == "tailfold_error"
    assert error["message"]
    return str(error["code"])


async def still_serves(proxy: Running) -> None:
    answer = await ask(proxy.port, request("POST", "/v1/chat/completions", body=CHAT))
    assert answer.status == 200


@pytest.mark.parametrize("begin", [b"", b"GET /v1/mod", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_arrive_in_time_is_refused(upstream: Simulator, begin: bytes) -> None:
    async with running(upstream.base_url, timeouts={"head": 0.2}) as proxy, wire(proxy.port) as connection:
        await connection.send(begin)
        await still_serves(proxy)
        answer = await connection.answer()
        assert (answer.status, code(answer)) == (408, "request_timeout")
        assert await connection.closed() == b""
        assert proxy.metric("tailfold_errors_total", code="request_timeout") == 1


async def test_a_second_head_is_bounded_by_the_keepalive_time(upstream: Simulator) -> None:
    async with (
        running(upstream.base_url, timeouts={"keepalive": 0.3}) as proxy,
        wire(proxy.port) as connection,
    ):
        await connection.send(request())
        assert (await connection.answer()).status == 200
        await connection.send(b"GET /v1/mod")
        assert await connection.closed() == b""


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
async def test_a_body_that_does_not_arrive_in_time_is_refused(
    upstream: Simulator, path: str, framing: bytes
) -> None:
    async with running(upstream.base_url, timeouts={"body": 0.2}) as proxy, wire(proxy.port) as connection:
        await connection.send(b"POST %b HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n1\r\n{" % (path.encode(), framing))
        await still_serves(proxy)
        answer = await connection.answer()
        assert (answer.status, code(answer)) == (408, "request_timeout")
    await upstream.wait_until(lambda: upstream.active == 0)


async def test_a_dripping_body_is_too_slow_however_steadily_it_drips(upstream: Simulator) -> None:
    async with (
        running(upstream.base_url, timeouts={"body": 0.3}, limits={"body_rate": 10_000_000}) as proxy,
        wire(proxy.port) as connection,
    ):
        await connection.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
        )
        answering = asyncio.ensure_future(connection.answer())
        while not answering.done():
            await connection.send(b" ")
            await asyncio.wait([answering], timeout=0.02)
        assert code(answering.result()) == "request_timeout"


async def test_the_time_an_upstream_takes_for_an_upload_is_not_the_clients(upstream: Simulator) -> None:
    """The upstream takes nothing for longer than the client would be allowed to pause."""
    taken = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await taken.wait()
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    size = 20_000_000
    server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=2**16)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with running(url, timeouts={"body": 0.2}) as proxy, wire(proxy.port) as connection:
        sending = asyncio.ensure_future(connection.send(request("PUT", "/v1/files", body=bytes(size))))
        answering = asyncio.ensure_future(connection.answer())
        done, _ = await asyncio.wait([answering], timeout=0.8)
        assert not done
        taken.set()
        await sending
        assert (await answering).body == b"ok"
    server.close()


@pytest.mark.parametrize("path", ["/v1/files", "/v1/chat/completions"])
async def test_an_upstream_that_takes_nothing_of_a_request_is_given_up(path: str) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await left.wait()
        writer.close()

    left = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=2**16)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with running(url, timeouts={"idle": 0.3}) as proxy, wire(proxy.port) as connection:
        sending = asyncio.ensure_future(connection.send(request("POST", path, body=bytes(30_000_000))))
        answer = await connection.answer()
        assert (answer.status, code(answer)) == (504, "upstream_timeout")
        left.set()
        sending.cancel()
    server.close()


async def test_a_chat_body_over_the_limit_is_refused_before_it_is_read(upstream: Simulator) -> None:
    async with (
        running(upstream.base_url, limits={"chat_body": 1000}) as proxy,
        wire(proxy.port) as connection,
    ):
        await connection.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"
        )
        answer = await connection.answer()
        assert (answer.status, code(answer)) == (413, "request_too_large")
        assert answer.values(b"connection") == [b"close"]
        await still_serves(proxy)


async def test_of_a_refused_body_only_a_little_is_read(upstream: Simulator) -> None:
    async with (
        running(upstream.base_url, limits={"chat_body": 1000}) as proxy,
        wire(proxy.port) as connection,
    ):
        await connection.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % 2**40
        )
        assert (await connection.answer()).status == 413
        with pytest.raises(ConnectionError):
            await connection.send(*[bytes(2**20)] * 1000)


async def test_a_chat_body_that_grows_over_the_limit_is_refused(upstream: Simulator) -> None:
    async with (
        running(upstream.base_url, limits={"chat_body": 1000}) as proxy,
        wire(proxy.port) as connection,
    ):
        await connection.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"400\r\n" + b"x" * 1024 + b"\r\n",
        )
        assert code(await connection.answer()) == "request_too_large"


async def test_an_upload_has_no_size_limit(upstream: Simulator) -> None:
    async with running(upstream.base_url, limits={"chat_body": 1000, "in_flight": 1000}) as proxy:
        answer = await ask(proxy.port, request("POST", "/v1/echo", body=bytes(3_000_000)))
        assert orjson.loads(answer.body)["body_length"] == 3_000_000


async def test_bytes_in_flight_are_bounded_and_freed(upstream: Simulator) -> None:
    async with running(upstream.base_url, limits={"in_flight": 100}) as proxy:
        async with wire(proxy.port) as holding:
            upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
            await holding.send(request("POST", "/v1/chat/completions", body=CHAT))
            await upstream.wait_for_request(1)
            assert proxy.metric("tailfold_in_flight_bytes") == len(CHAT)
            answer = await ask(proxy.port, request("POST", "/v1/chat/completions", body=CHAT))
            assert (answer.status, code(answer)) == (503, "overloaded")
            assert answer.values(b"retry-after") == [b"1"]
        await upstream.wait_until(lambda: upstream.active == 0)
        await still_serves(proxy)
        assert proxy.metric("tailfold_in_flight_bytes") == 0


async def test_bytes_that_are_only_announced_take_nobodys_place(upstream: Simulator) -> None:
    async with running(upstream.base_url, limits={"in_flight": 1000}) as proxy, wire(proxy.port) as idle:
        await idle.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{")
        await still_serves(proxy)


async def test_connections_over_the_limit_are_turned_away_and_others_go_on(upstream: Simulator) -> None:
    async with running(upstream.base_url, limits={"connections": 1}) as proxy, wire(proxy.port) as first:
        await first.send(request())
        assert (await first.answer()).status == 200
        async with wire(proxy.port) as second:
            answer = await second.answer()
            assert (answer.status, code(answer)) == (503, "overloaded")
            assert await second.closed() == b""
            assert proxy.metric("tailfold_errors_total", code="overloaded") == 1
        await first.send(request())
        assert (await first.answer()).status == 200


async def test_a_client_that_stops_reading_is_let_go(upstream: Simulator) -> None:
    async with running(upstream.base_url, timeouts={"idle": 0.3}) as proxy, wire(proxy.port) as connection:
        await connection.send(
            request("GET", "/v1/echo", [("x-sim-respond", '{"pieces":["%s"]}' % ("QUFB" * 2000))]),
        )
        assert (await connection.answer()).status == 200
        upstream.perform_next([b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", *[bytes(2**20)] * 95])
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.send(request())
        await upstream.wait_until(lambda: upstream.cancelled == 1)
    assert proxy.metric("tailfold_errors_total", code="client_disconnected") == 1
