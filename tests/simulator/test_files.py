from __future__ import annotations

import hashlib
import os

import aiohttp
import pytest
from openai import AsyncOpenAI, NotFoundError

from proxy.simulator import Simulator, SimulatorConfig


@pytest.mark.parametrize("size", [0, 1, 300_000, 9 * 2**20])
async def test_a_file_comes_back_as_it_was_sent(openai: AsyncOpenAI, size: int) -> None:
    content = os.urandom(size)
    stored = await openai.files.create(file=("päper.bin", content), purpose="user_data")
    assert (stored.bytes, stored.filename, stored.purpose) == (size, "päper.bin", "user_data")
    assert stored.to_dict()["sha256"] == hashlib.sha256(content).hexdigest()
    assert (await openai.files.content(stored.id)).content == content


async def test_files_are_listed_found_and_deleted(openai: AsyncOpenAI) -> None:
    first = await openai.files.create(file=("a.txt", b"a"), purpose="batch")
    second = await openai.files.create(file=("b.txt", b"b"), purpose="batch")
    assert [file.id async for file in openai.files.list()] == [first.id, second.id]
    assert (await openai.files.retrieve(first.id)).filename == "a.txt"
    assert (await openai.files.delete(first.id)).deleted
    with pytest.raises(NotFoundError, match="No such File object"):
        await openai.files.retrieve(first.id)


async def test_of_a_file_too_large_only_the_digest_is_kept() -> None:
    async with (
        Simulator(SimulatorConfig(max_kept_file=10)) as sim,
        AsyncOpenAI(base_url=sim.base_url, api_key="k", max_retries=0) as client,
    ):
        stored = await client.files.create(file=("a", b"x" * 11), purpose="batch")
        assert stored.to_dict()["sha256"] == hashlib.sha256(b"x" * 11).hexdigest()
        with pytest.raises(Exception, match="too large to be kept"):
            await client.files.content(stored.id)


async def test_a_form_without_its_fields_is_refused(sim: Simulator, http: aiohttp.ClientSession) -> None:
    form = aiohttp.FormData()
    form.add_field("file", b"x", filename="a.txt")
    async with http.post(f"{sim.base_url}/files", data=form) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "purpose"
