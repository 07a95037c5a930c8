"""Whatever is thrown at it: a clear 4xx in OpenAI's shape or the bytes forwarded, and others are served."""

from __future__ import annotations

import gzip

import orjson
import pytest

from proxy.simulator import Simulator
from tests.raw import ask, request, wire
from tests.running import Running, running
from tests.test_limits import code, still_serves

NOT_HTTP = {
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + b"\r\n\r\n",
    "no version": b"GET /v1/models\r\n\r\n",
    "a bad method": b"G@T /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header without a colon": b"GET /v1/models HTTP/1.1\r\nHost x\r\n\r\n",
    "a space in a name": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n",
    "a NUL in a value": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "two lengths": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": (
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a negative length": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length in words": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
    "a length with a plus": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na",
    "hidden chunks": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "packed chunks": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a long line": b"GET /v1/" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    "HTTP/3.0": b"GET /v1/models HTTP/3.0\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("sent", NOT_HTTP.values(), ids=NOT_HTTP.keys())
async def test_what_is_not_http_is_refused_clearly_and_reaches_nobody(
    tailfold: Running, upstream: Simulator, sent: bytes
) -> None:
    async with wire(tailfold.port) as connection:
        await connection.send(sent)
        answer = await connection.answer()
        assert 400 <= answer.status < 500 or answer.status == 501
        code(answer)
        await still_serves(tailfold)
    assert upstream.arrived == 1


BROKEN_CHUNKS = {
    "a size that is no number": b"zz\r\nhello\r\n0\r\n\r\n",
    "a size that lies": b"3\r\nhello\r\n0\r\n\r\n",
    "a huge size": b"ffffffffffffffffff\r\nx\r\n",
}


@pytest.mark.parametrize("together", [True, False], ids=["with the head", "after the head"])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/files"], ids=["chat", "other"])
@pytest.mark.parametrize("chunks", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS.keys())
async def test_broken_chunks_never_become_a_whole_request(
    upstream: Simulator, chunks: bytes, path: bytes, together: bool
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    async with running(upstream.base_url, timeouts={"body": 0.3}) as proxy, wire(proxy.port) as connection:
        await connection.send(*([head + chunks] if together else [head, chunks]))
        answer = await connection.answer()
        assert answer.status in (400, 408)
        code(answer)
        await still_serves(proxy)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert [received.route for received in upstream.requests] == ["chat/completions"] or len(
        upstream.requests
    ) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"messages":' + b"[" * 50_000,
        b'{"messages":' + b'[{"a":' * 5_000 + b"1" + b"}]" * 5_000 + b"}",
        b'{"model":"\xff\xfe"}',
        b'{"model":"\\ud800","stream":true}',
        b'\xef\xbb\xbf{"model":"gpt-4o"}',
        b'{"stream":true,"stream_options":' + b"9" * 10_000 + b"}",
        b'{"model":"' + b"m" * 100_000 + b'"}',
        b"\x00" * 1000,
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_a_body_that_makes_no_sense_is_the_upstreams_business(
    tailfold: Running, upstream: Simulator, body: bytes
) -> None:
    answer = await ask(tailfold.port, request("POST", "/v1/chat/completions", body=body))
    assert upstream.requests[0].body == body
    direct = await ask(upstream.port, request("POST", "/v1/chat/completions", body=body))
    assert (answer.status, answer.body) == (direct.status, direct.body)


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(bytes(50_000_000)), gzip.compress(b"{}")[:-9], b"not gzip"],
    ids=["bomb", "cut", "not"],
)
async def test_compressed_bodies_are_forwarded_and_never_unpacked(
    tailfold: Running, upstream: Simulator, packed: bytes
) -> None:
    headers = [("Content-Encoding", "gzip")]
    answer = await ask(tailfold.port, request("POST", "/v1/chat/completions", headers, packed))
    assert upstream.requests[0].body == packed
    assert 400 <= answer.status < 500


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/a/../../b",
        "/v1/%2e%2e/admin",
        "/v1/.%2E/x",
        "/v1/./x",
        "/v1/..",
        "/v1/..%2fx",
        "/v1/a%2F..%2fx",
        "/v1/..\\x",
        "/v1/..%5Cx",
        "/v1/..;/x",
    ],
)
async def test_a_path_cannot_leave_the_upstreams_base(
    tailfold: Running, upstream: Simulator, path: str
) -> None:
    answer = await ask(tailfold.port, request(path=path))
    assert answer.status in (400, 404)
    code(answer)
    assert upstream.arrived == 0


@pytest.mark.parametrize(
    "target", ["http://evil.example/v1/models", "//evil.example/v1/models", "evil.example:443"]
)
async def test_nothing_in_a_request_chooses_an_upstream(
    tailfold: Running, upstream: Simulator, target: str
) -> None:
    method = "CONNECT" if ":443" in target else "GET"
    answer = await ask(
        tailfold.port, request(method, target, [("X-Forwarded-Host", "evil"), ("Host", "evil")])
    )
    assert 400 <= answer.status < 500
    assert upstream.arrived == 0


async def test_a_half_sent_request_is_never_completed(tailfold: Running, upstream: Simulator) -> None:
    async with wire(tailfold.port) as connection:
        await connection.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        await upstream.wait_for_request(1)
    await upstream.wait_until(lambda: upstream.active == 0)
    assert upstream.requests == []
    await still_serves(tailfold)


async def test_a_websocket_is_refused_clearly(tailfold: Running) -> None:
    headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ]
    answer = await ask(tailfold.port, request(path="/v1/realtime", headers=headers))
    assert (answer.status, code(answer)) == (501, "not_supported")


async def test_a_wish_to_upgrade_to_http_2_is_ignored(tailfold: Running, upstream: Simulator) -> None:
    headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]
    answer = await ask(tailfold.port, request("POST", "/v1/echo", headers, b"abc"))
    assert orjson.loads(answer.body)["body_length"] == 3
    assert upstream.requests[0].headers_named("http2-settings") == []


@pytest.mark.parametrize("path", ["/v1/%0d%0aX:y", "/v1/%0A", "/v1/a%00b", "/v1/%zz%"])
async def test_a_path_is_not_decoded_on_its_way(tailfold: Running, upstream: Simulator, path: str) -> None:
    await ask(tailfold.port, request(path=path))
    assert upstream.requests[0].path == path


async def test_what_is_no_path_is_a_404_in_openais_shape(tailfold: Running) -> None:
    answer = await ask(tailfold.port, request("OPTIONS", "*"))
    assert (answer.status, code(answer)) == (404, "not_found")
    assert tailfold.metric("tailfold_errors_total", code="not_found") == 1


LARGE_HEADS = ["a long line", "a long header", "many headers"]


@pytest.mark.parametrize("which", LARGE_HEADS)
async def test_a_head_that_is_too_large_is_told_so(tailfold: Running, which: str) -> None:
    answer = await ask(tailfold.port, NOT_HTTP[which])
    assert (answer.status, code(answer)) == (431, "head_too_large")
    assert tailfold.metric("tailfold_errors_total", code="head_too_large") == 1


async def test_an_error_of_ours_does_not_tell_what_we_run_on(tailfold: Running) -> None:
    for sent in (
        NOT_HTTP["noise"],
        request(path="/nowhere"),
        request(path="/v1/../x"),
        request(path="/healthz"),
    ):
        answer = await ask(tailfold.port, sent)
        assert answer.values(b"server") in ([], [b"tailfold"])


async def test_a_foreign_expectation_is_refused(tailfold: Running) -> None:
    answer = await ask(tailfold.port, request(headers=[("Expect", "a miracle")]))
    assert (answer.status, code(answer)) == (417, "expectation_failed")


async def test_an_unknown_mode_is_refused(tailfold: Running, upstream: Simulator) -> None:
    headers = [("X-Tailfold-Mode", "turbo")]
    answer = await ask(tailfold.port, request("POST", "/v1/chat/completions", headers, b"{}"))
    assert (answer.status, code(answer)) == (400, "bad_request")
    assert upstream.arrived == 0
