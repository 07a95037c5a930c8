"""What arrives is passed on as it arrives: the upstream sends no piece before the client has the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest
from openai import AsyncOpenAI

from tests.running import Running, running
from tests.sdk_support import (
    CHUNKED_STREAM,
    DONE,
    EVENT_STREAM,
    FINISH,
    LAST_CHUNK,
    PATIENCE,
    ManualUpstream,
    Peer,
    delta,
    event,
    framed,
    head,
    sdk,
)
from tests.simulator.talk import chat, user

HELLO = chat(user("hello"))
ASKED = orjson.dumps({**HELLO, "stream": True, "stream_options": {"include_usage": True}})
UNASKED = orjson.dumps({**HELLO, "stream": True})
BIG = delta("x" * 2**20)
USAGE_CHUNK = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})


@pytest.fixture
async def manual() -> AsyncIterator[ManualUpstream]:
    async with ManualUpstream() as upstream:
        yield upstream


@pytest.fixture
async def proxy(manual: ManualUpstream) -> AsyncIterator[Running]:
    async with running(manual.base_url) as proxy:
        yield proxy


@pytest.fixture
async def openai(proxy: Running) -> AsyncIterator[AsyncOpenAI]:
    async with sdk(proxy.base_url) as client:
        yield client


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    limit = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(auto_decompress=False, timeout=limit) as session:
        yield session


class RawStream:
    """A stream as bytes, asked for with `body`; the test plays the upstream at the same time."""

    def __init__(self, answer: aiohttp.ClientResponse, peer: Peer) -> None:
        self.answer = answer
        self.peer = peer
        self.received = b""

    async def until(self, length: int) -> bytes:
        """All that has been received, once it is at least so long."""
        while len(self.received) < length:
            piece = await self.answer.content.readany()
            assert piece, f"ended after {self.received!r}"
            self.received += piece
        return self.received

    async def rest(self) -> bytes:
        self.received += await self.answer.content.read()
        return self.received


async def opened(
    http: aiohttp.ClientSession,
    proxy: Running,
    manual: ManualUpstream,
    body: bytes,
    beginning: bytes,
    path: str = "chat/completions",
) -> RawStream:
    """A stream of which the upstream has sent the head and no more."""
    asking = asyncio.create_task(http.post(f"{proxy.base_url}/{path}", data=body).__aenter__())
    peer = await manual.accept()
    await peer.request()
    peer.send(beginning)
    return RawStream(await asking, peer)


# As it arrives.


@pytest.mark.parametrize("ask", [False, True])
async def test_the_sdk_has_every_chunk_before_the_upstream_sends_the_next(
    openai: AsyncOpenAI, manual: ManualUpstream, ask: bool
) -> None:
    asking = asyncio.create_task(
        openai.chat.completions.create(**HELLO, stream=True, stream_options={"include_usage": ask})
    )
    peer = await manual.accept()
    await peer.request()
    peer.send(CHUNKED_STREAM)
    stream = await asking  # the head is here, and no byte of the body has been sent
    for word in ("one", "two", "three", "四"):
        peer.send(framed(delta(word)))
        chunk = await anext(stream)
        assert chunk.choices[0].delta.content == word
    peer.send(framed(FINISH), framed(USAGE_CHUNK), framed(DONE), LAST_CHUNK)
    rest = [chunk async for chunk in stream]
    assert [len(chunk.choices) for chunk in rest] == ([1, 0] if ask else [1])


async def test_a_plain_answer_begins_before_it_ends(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession
) -> None:
    beginning = head("200 OK", ("content-type", "application/json"), ("content-length", "10"))
    stream = await opened(http, proxy, manual, orjson.dumps(HELLO), beginning)
    assert stream.answer.headers["content-length"] == "10"
    for length in range(1, 11):
        stream.peer.send(b"%d" % (length % 10))
        assert await stream.until(length) == b"1234567890"[:length]
    assert await stream.rest() == b"1234567890"


@pytest.mark.parametrize("body", [ASKED, UNASKED], ids=["asked", "unasked"])
async def test_events_that_come_together_go_together_and_half_an_event_waits_for_nobody_else(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, body: bytes
) -> None:
    stream = await opened(http, proxy, manual, body, CHUNKED_STREAM)
    first, second, third = delta("one"), delta("two"), delta("three")
    stream.peer.send(framed(first + second + third[:20]))
    assert (await stream.until(len(first + second))).startswith(first + second)
    stream.peer.send(framed(third[20:]))
    assert await stream.until(len(first + second + third)) == first + second + third
    stream.peer.send(framed(FINISH + DONE), LAST_CHUNK)
    assert await stream.rest() == first + second + third + FINISH + DONE


async def test_a_comment_that_keeps_the_connection_alive_is_not_held_back(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession
) -> None:
    stream = await opened(http, proxy, manual, UNASKED, CHUNKED_STREAM)
    ping = b": OPENROUTER PROCESSING\n\n"
    for count in range(1, 4):
        stream.peer.send(framed(ping))
        assert await stream.until(count * len(ping)) == count * ping
    stream.peer.send(framed(DONE), LAST_CHUNK)
    assert await stream.rest() == 3 * ping + DONE


async def test_the_end_of_a_hidden_usage_chunk_is_the_end_of_the_stream(
    openai: AsyncOpenAI, manual: ManualUpstream
) -> None:
    """The client is not kept waiting by what is taken out, and the connection is used again."""
    peer = None
    for _ in range(2):
        asking = asyncio.create_task(openai.chat.completions.create(**HELLO, stream=True))
        peer = peer or await manual.accept()
        await peer.request()
        peer.send(CHUNKED_STREAM, framed(delta("hi")), framed(FINISH))
        stream = await asking
        assert [(await anext(stream)).choices[0].finish_reason for _ in range(2)] == [None, "stop"]
        peer.send(framed(USAGE_CHUNK), framed(DONE), LAST_CHUNK)
        assert [chunk async for chunk in stream] == []
    assert manual.connections == 1


async def test_other_streams_are_relayed_as_they_arrive_too(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession
) -> None:
    stream = await opened(http, proxy, manual, UNASKED, CHUNKED_STREAM, "responses")
    expected = b""
    for piece in (b"event: response.created\n", b"data: {", b"}\n\n", b"\x00\xff binary"):
        expected += piece
        stream.peer.send(framed(piece))
        assert await stream.until(len(expected)) == expected
    stream.peer.send(LAST_CHUNK)
    assert await stream.rest() == expected


@pytest.mark.parametrize("declared", [True, False])
async def test_an_upload_reaches_the_upstream_as_it_arrives(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, declared: bool
) -> None:
    seen: asyncio.Queue[None] = asyncio.Queue()

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"piece %d;" % number
            await seen.get()  # the upstream has it

    headers = {"content-length": str(5 * len(b"piece 0;"))} if declared else {}
    posting = asyncio.create_task(
        http.post(f"{proxy.base_url}/files", data=pieces(), headers=headers).__aenter__()
    )
    peer = await manual.accept()
    await peer.receive_head()
    for number in range(5):
        piece = b"piece %d;" % number
        expected = piece if declared else framed(piece)
        assert await peer.receive(len(expected)) == expected
        seen.put_nowait(None)
    if not declared:
        assert await peer.receive(len(LAST_CHUNK)) == LAST_CHUNK
    peer.send(head("200 OK", ("content-length", "2")), b"ok")
    answer = await posting
    assert await answer.read() == b"ok"


async def test_an_upload_may_be_answered_while_it_is_still_arriving(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession
) -> None:
    answered = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await answered.wait()
        yield b"second"

    posting = asyncio.create_task(http.post(f"{proxy.base_url}/audio", data=pieces()).__aenter__())
    peer = await manual.accept()
    await peer.receive_head()
    assert await peer.receive(len(framed(b"first"))) == framed(b"first")
    peer.send(CHUNKED_STREAM, framed(b"heard"))
    answer = await posting
    assert await answer.content.readany() == b"heard"
    answered.set()
    assert await peer.receive(len(framed(b"second") + LAST_CHUNK)) == framed(b"second") + LAST_CHUNK
    peer.send(framed(b"both"), LAST_CHUNK)
    assert await answer.content.read() == b"both"


# No faster than it is taken.

MEGABYTES = 96  # more than the sockets on the way hold


async def held_up(task: asyncio.Task[None]) -> bool:
    """Is it kept waiting? A slow machine may say yes for another reason, but never no without reason."""
    done, _ = await asyncio.wait({task}, timeout=1.0)
    return not done


@pytest.mark.parametrize("path", ["chat/completions", "audio/speech"])
async def test_a_client_that_does_not_read_holds_the_upstream_up(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, path: str
) -> None:
    length = MEGABYTES * 2**20
    beginning = head("200 OK", ("content-type", "audio/mpeg"), ("content-length", str(length)))
    stream = await opened(http, proxy, manual, UNASKED, beginning, path)

    async def send() -> None:
        for _ in range(MEGABYTES):
            stream.peer.send(bytes(2**20))
            await stream.peer.taken()

    sending = asyncio.create_task(send())
    assert await held_up(sending)
    received = [len(piece) async for piece in stream.answer.content.iter_any()]
    assert sum(received) == length
    await sending


async def test_an_upstream_that_does_not_read_holds_the_client_up(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MEGABYTES):
            yield bytes(2**20)
        sent.set()

    sent = asyncio.Event()
    headers = {"content-length": str(MEGABYTES * 2**20)}
    posting = asyncio.create_task(
        http.post(f"{proxy.base_url}/files", data=pieces(), headers=headers).__aenter__()
    )
    peer = await manual.accept()
    await peer.receive_head()
    assert await held_up(asyncio.create_task(_until(sent)))
    for _ in range(MEGABYTES):
        assert await peer.receive(2**20) == bytes(2**20)
    peer.send(head("204 No Content"))
    assert (await posting).status == 204


async def _until(event: asyncio.Event) -> None:
    await event.wait()


# As it is.

ODD_STREAMS = {
    "crlf": (delta("a") + FINISH + DONE).replace(b"\n", b"\r\n"),
    "cr": (delta("a") + FINISH + DONE).replace(b"\n", b"\r"),
    "mixed ends": b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\ndata: 4\n\rdata: [DONE]\r\n\r\n",
    "comments": b": hello\n:\n: \n\n" + delta("a") + b":ping\n\n" + DONE,
    "several lines of data": b'data: {"choices":[\ndata: ],\ndata: "x":1}\n\n' + DONE,
    "fields of other kinds": b"id: 7\nretry: 10\nevent: message\ndata:no space\nnonsense\n\n" + DONE,
    "no last empty line": delta("a") + DONE.rstrip(b"\n"),
    "only half a line": delta("a") + b'data: {"cho',
    "nothing after the end but more": DONE + delta("more") + b"\n\n\n" + DONE,
    "empty lines": b"\n\n\n\n" + delta("a") + b"\n\n" + DONE,
    "a byte order mark": b"\xef\xbb\xbf" + delta("a") + DONE,
    "not utf-8": b"data: \xff\xfe\x80\n\n" + DONE,
    "one big event": BIG + DONE,
    "one big event without end": BIG.rstrip(b"\n"),
    "big events among small": delta("a") + BIG + delta("b") + BIG + FINISH + DONE,
    "nothing": b"",
}


SIZES = {name: (1, 3, 2**22) if len(whole) < 2**20 else (16384, 2**22) for name, whole in ODD_STREAMS.items()}


@pytest.mark.parametrize("body", [ASKED, UNASKED], ids=["asked", "unasked"])
@pytest.mark.parametrize(("name", "size"), [(name, size) for name, sizes in SIZES.items() for size in sizes])
async def test_a_stream_passes_byte_for_byte(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, name: str, size: int, body: bytes
) -> None:
    whole = ODD_STREAMS[name]
    stream = await opened(http, proxy, manual, body, CHUNKED_STREAM)
    await stream.peer.trickle(whole, size)
    assert await stream.rest() == whole


@pytest.mark.parametrize("body", [ASKED, UNASKED], ids=["asked", "unasked"])
async def test_characters_may_be_cut_anywhere(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, body: bytes
) -> None:
    """A tick before each half shows that it has come through before the other half is sent."""
    tick, text = b": tick\n\n", delta("é世🦊")
    stream = await opened(http, proxy, manual, body, CHUNKED_STREAM)
    expected = b""
    for cut in range(len(text) + 1):
        stream.peer.send(framed(tick + text[:cut]))
        assert (await stream.until(len(expected + tick))).startswith(expected + tick)
        stream.peer.send(framed(text[cut:] + tick) if cut < len(text) else framed(tick))
        expected += tick + text + tick
        assert await stream.until(len(expected)) == expected
    stream.peer.send(framed(DONE), LAST_CHUNK)
    assert await stream.rest() == expected + DONE


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 5, 4096])
async def test_a_usage_chunk_is_taken_out_whatever_its_lines_end_with(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, end: bytes, size: int
) -> None:
    kept = [delta("a"), FINISH]
    whole = b"".join([*kept, USAGE_CHUNK, DONE]).replace(b"\n", end)
    stream = await opened(http, proxy, manual, UNASKED, CHUNKED_STREAM)
    await stream.peer.trickle(whole, size)
    seen = await stream.rest()
    assert b"usage" not in seen
    # An end cut between CR and LF may leave an empty line behind, which means nothing.
    assert [line for line in seen.split(end) if line.strip()] == [
        line for line in b"".join([*kept, DONE]).split(b"\n") if line
    ]


@pytest.mark.parametrize("body", [ASKED, UNASKED], ids=["asked", "unasked"])
@pytest.mark.parametrize("framing", ["content-length", "until close"])
async def test_a_stream_need_not_be_chunked(
    proxy: Running, manual: ManualUpstream, http: aiohttp.ClientSession, framing: str, body: bytes
) -> None:
    first, rest = delta("one"), delta("two") + FINISH + DONE
    length = (("content-length", str(len(first + rest))),) if framing == "content-length" else ()
    stream = await opened(http, proxy, manual, body, head("200 OK", EVENT_STREAM, *length))
    stream.peer.send(first)
    assert await stream.until(len(first)) == first
    stream.peer.send(rest)
    if not length:
        await stream.peer.close()
    assert await stream.rest() == first + rest


async def test_an_interim_answer_does_not_disturb_the_final_one(
    openai: AsyncOpenAI, manual: ManualUpstream
) -> None:
    asking = asyncio.create_task(openai.chat.completions.create(**HELLO, stream=True))
    peer = await manual.accept()
    await peer.request()
    peer.send(head("103 Early Hints", ("link", "</x>")), CHUNKED_STREAM)
    stream = await asking
    peer.send(framed(delta("hi") + DONE), LAST_CHUNK)
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["hi"]
