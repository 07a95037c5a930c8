from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from proxy.simulator import Fault, Pause, Simulator
from tests.raw import ask, request, wire
from tests.running import running
from tests.test_limits import CHAT, code

STREAM = CHAT[:-1] + b',"stream":true}'


async def test_a_running_stream_is_finished_and_new_clients_are_refused() -> None:
    gate = asyncio.Event()

    async def gated(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfir")
        await gate.wait()
        writer.write(b"st!")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(gated, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with running(url, timeouts={"drain": 5}) as proxy, wire(proxy.port) as connection:
        await connection.send(request())
        head = await connection.reader.readuntil(b"fir")
        draining = asyncio.ensure_future(proxy.app.drain())
        await asyncio.sleep(0)  # lets the drain begin, which closes the door before anything else
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ask(proxy.port, request(path="/healthz"))
        gate.set()
        assert head.startswith(b"HTTP/1.1 200")
        assert await connection.reader.readexactly(3) == b"st!"
        await draining
    server.close()


async def test_a_stream_that_does_not_end_in_time_is_broken_off_visibly(upstream: Simulator) -> None:
    async with running(upstream.base_url, timeouts={"drain": 0.2}) as proxy, wire(proxy.port) as connection:
        upstream.fail_next(Fault.HANG_MID_STREAM)
        await connection.send(request("POST", "/v1/chat/completions", body=STREAM))
        await connection.reader.readuntil(b"data:")
        await proxy.app.drain()
        rest = await connection.closed()
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
    await upstream.wait_until(lambda: upstream.active == 0)


async def test_a_request_on_an_open_connection_is_served_during_the_drain_and_told_to_leave(
    upstream: Simulator,
) -> None:
    async with (
        running(upstream.base_url, timeouts={"drain": 30}) as proxy,
        wire(proxy.port) as busy,
        wire(proxy.port) as probe,
        wire(proxy.port) as open_already,
    ):
        await probe.send(request(path="/readyz"))
        assert (await probe.answer()).status == 200
        upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
        await busy.send(request("POST", "/v1/chat/completions", body=CHAT))
        await upstream.wait_for_request(1)
        draining = asyncio.ensure_future(proxy.app.drain())
        await asyncio.sleep(0)  # lets the drain begin
        for connection, path, status in ((probe, "/readyz", 503), (open_already, "/v1/models", 200)):
            await connection.send(request(path=path))
            answer = await connection.answer()
            assert (answer.status, answer.values(b"connection")) == (status, [b"close"])
            assert await connection.closed() == b""
        proxy.app.hurry()
        await draining


async def test_a_request_whose_answer_has_not_begun_is_told_of_the_end(upstream: Simulator) -> None:
    with capture_logs() as lines:
        async with (
            running(upstream.base_url, timeouts={"drain": 0.1}) as proxy,
            wire(proxy.port) as connection,
        ):
            upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
            await connection.send(request("POST", "/v1/chat/completions", body=CHAT))
            await upstream.wait_for_request(1)
            await proxy.app.drain()
            answer = await connection.answer()
            assert (answer.status, code(answer)) == (503, "shutting_down")
            assert proxy.metric("tailfold_errors_total", code="shutting_down") == 1
    assert [line["status"] for line in lines if line["event"] == "request"] == [503]
    await upstream.wait_until(lambda: upstream.active == 0)


async def test_somebody_in_a_hurry_does_not_wait_for_the_drain(upstream: Simulator) -> None:
    async with running(upstream.base_url, timeouts={"drain": 3600}) as proxy, wire(proxy.port) as connection:
        upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
        await connection.send(request("POST", "/v1/chat/completions", body=CHAT))
        await upstream.wait_for_request(1)
        draining = asyncio.ensure_future(proxy.app.drain())
        await asyncio.sleep(0)  # lets the drain begin
        proxy.app.hurry()
        await draining
        assert (await connection.answer()).status == 503
    await upstream.wait_until(lambda: upstream.active == 0)


async def test_a_hurry_that_comes_before_the_drain_counts_too(upstream: Simulator) -> None:
    async with running(upstream.base_url, timeouts={"drain": 3600}) as proxy, wire(proxy.port) as connection:
        upstream.fail_next(Fault.HANG_BEFORE_HEADERS)
        await connection.send(request("POST", "/v1/chat/completions", body=CHAT))
        await upstream.wait_for_request(1)
        proxy.app.hurry()
        await proxy.app.drain()
        assert (await connection.answer()).status == 503


async def test_an_idle_connection_is_closed_at_once(upstream: Simulator) -> None:
    async with running(upstream.base_url) as proxy, wire(proxy.port) as connection:
        await connection.send(request())
        assert (await connection.answer()).status == 200
        await proxy.app.drain()
        assert await connection.closed() == b""


async def test_the_last_answer_on_a_connection_says_that_it_is_the_last(upstream: Simulator) -> None:
    async with running(upstream.base_url, timeouts={"drain": 5}) as proxy:
        upstream.perform_next([Pause(0.1), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
        async with wire(proxy.port) as connection:
            await connection.send(request())
            await upstream.wait_for_request(1)
            draining = asyncio.ensure_future(proxy.app.drain())
            answer = await connection.answer()
            await draining
    assert answer.status == 200
    assert answer.values(b"connection") == [b"close"]
