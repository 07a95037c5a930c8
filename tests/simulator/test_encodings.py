from __future__ import annotations

import gzip
import importlib
import zlib
from collections.abc import Callable

import aiohttp
import pytest
from openai import AsyncOpenAI

from proxy.simulator import Answer, Framing, Simulator, SimulatorConfig
from proxy.simulator.answers import ApiError
from proxy.simulator.encodings import CODINGS, acceptable_coding, decoded, encoded
from tests.simulator.talk import chat, user

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
    "br": importlib.import_module("brotli").decompress,
    "zstd": importlib.import_module("backports.zstd").decompress,
}


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED])
def test_every_coding_can_be_undone(coding: str, framing: Framing) -> None:
    answer = encoded(Answer(pieces=(b"one", memoryview(b"two"), b"three"), framing=framing), coding)
    assert DECODERS[coding](b"".join(answer.pieces)) == b"onetwothree"
    assert ("content-encoding", coding) in answer.headers


def test_a_streamed_piece_can_be_read_before_the_next_one_comes() -> None:
    answer = encoded(Answer(pieces=(b"one", b"two"), framing=Framing.CHUNKED), "gzip")
    assert zlib.decompressobj(wbits=31).decompress(answer.pieces[0]) == b"one"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("GZIP;q=0.5, br;q=0", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("*", "zstd"),
        ("gzip;q=much", None),
    ],
)
def test_uses_only_what_the_client_accepts(accepted: str, coding: str | None) -> None:
    assert acceptable_coding(accepted) == coding


async def test_compresses_only_when_told_to(sim: Simulator, http: aiohttp.ClientSession) -> None:
    url = f"{sim.base_url}/models"
    async with http.get(url, headers={"accept-encoding": "gzip"}) as plain:
        assert "content-encoding" not in plain.headers
        models = await plain.read()
    async with http.get(url, headers={"x-sim-compress": "br"}) as forced:
        assert DECODERS["br"](await forced.read()) == models
    async with http.get(url, headers={"x-sim-compress": "rar"}) as unknown:
        assert await unknown.read() == models


async def test_the_sdk_reads_compressed_answers() -> None:
    async with (
        Simulator(SimulatorConfig(compress=True)) as sim,
        AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client,
    ):
        raw = await client.chat.completions.with_raw_response.create(**chat(user("hi there")))
        assert raw.headers["content-encoding"] in CODINGS
        assert raw.parse().choices[0].message.content == "hi there"
        async with await client.chat.completions.create(**chat(user("hi there")), stream=True) as stream:
            heard = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(heard) == "hi there"


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (b"not gzip", "gzip", 400),
        (gzip.compress(b"cut")[:-4], "gzip", 400),
        (gzip.compress(b"0" * 10_000), "gzip", 413),
        (b"x", "rot13", 415),
    ],
    ids=["broken", "cut", "bomb", "unknown"],
)
def test_a_body_that_cannot_be_decoded_is_refused(body: bytes, coding: str, status: int) -> None:
    with pytest.raises(ApiError) as refused:
        decoded(body, coding, limit=1000)
    assert refused.value.status == status


def test_undoes_what_clients_send() -> None:
    assert decoded(gzip.compress(b"x"), "gzip", 10) == b"x"
    assert decoded(zlib.compress(b"x"), "Deflate", 10) == b"x"
    assert decoded(b"x", "identity", 10) == b"x"
