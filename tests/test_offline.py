"""With no network at all everything works that needs none, and litellm is never imported."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, socket, sys

def no_resolver(*_args, **_kwargs):
    raise socket.gaierror("there is no network")

socket.getaddrinfo = no_resolver

import aiohttp
from proxy import logs
from proxy.app import Tailfold
from proxy.settings import Settings

logs.configure("info", "json")

async def main():
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/chat/completions"
    settings = Settings(upstream="https://api.openai.com/v1", store="memory://", timeouts={"drain": 0.1})
    app = Tailfold(settings)
    await app.start(listening)
    body = {"model": "gpt-4o-2024-08-06", "messages": [{"role": "user", "content": "hello"}]}
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        print(answer.status, (await answer.json())["error"]["code"])
    print(app.metrics.exposition().decode())
    await app.drain()
    print("litellm" in sys.modules)

asyncio.run(main())
"""


def test_start_up_counting_and_the_model_map_need_no_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "502 upstream_unreachable"
    assert lines[-1] == "False"
    # Counted with the vocabulary, and measured against the window of the map.
    assert 'tailfold_counting_seconds_count{basis="cold"} 1.0' in lines
    assert 'tailfold_context_utilization_ratio_count{origin="litellm"} 1.0' in lines
