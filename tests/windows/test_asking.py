from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from proxy.metrics import Metrics
from proxy.ports import Store
from proxy.store.memory import MemoryStore
from proxy.store.sqlite import SqliteStore
from proxy.store.writing import LateWriter
from proxy.tasks import Tasks
from proxy.upstream import Timeouts, Upstream
from proxy.upstream.pool import Origin
from proxy.windows.asking import AGAIN_AFTER, PAUSES, Asking
from proxy.windows.said import Said
from tests.raw import raw_upstream
from tests.store.doubles import PATIENCE, Clock
from tests.windows import servers
from tests.windows.servers import Behaviour, Server, serving

KEY = [(b"Authorization", b"Bearer sk-very-secret")]


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one server; what it hears it keeps."""

    asking: Asking
    tasks: Tasks
    writer: LateWriter
    clock: Clock

    async def hears(self, model: str) -> Said | None:
        self.asking.about(model, KEY)
        await self.asking.finished()
        return self.asking.said_of(model)


@asynccontextmanager
async def asker(
    port: int,
    path: str = "/v1",
    host: str = "127.0.0.1",
    *,
    store: Store | None = None,
    limit: float = PATIENCE,
) -> AsyncIterator[Asker]:
    """`host` is what the upstream is called; whoever it is, it is reached at `port` of this machine."""
    tasks, clock = Tasks(), Clock()
    root = f"http://127.0.0.1:{port}"
    timeouts = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE)
    upstream = Upstream(root, Origin("127.0.0.1", port, None), timeouts, Metrics(), tasks)
    writer = LateWriter(store or MemoryStore(), tasks)
    asking = Asking(upstream, f"http://{host}:{port}{path}", writer, tasks, clock=clock, time_limit=limit)
    try:
        yield Asker(asking, tasks, writer, clock)
        await writer.drain(PATIENCE)
    finally:
        await tasks.close(timeout=0)
        upstream.close()


TELLING = {
    "vllm": (servers.VLLM, "/v1", "meta-llama/Llama-3.1-8B-Instruct", Said(32768)),
    "sglang": (servers.SGLANG, "/v1", "Qwen/Qwen3-32B", Said(40960)),
    "llama.cpp": (servers.LLAMA_CPP, "/v1", "model.gguf", Said(8192)),
    "llama.cpp of old": (servers.LLAMA_CPP_OF_OLD, "/v1", "model.gguf", Said(1024)),
    "ollama, loaded": (servers.OLLAMA_LOADED, "/v1", "llama3.1", Said(4096)),
    "ollama, with num_ctx": (servers.OLLAMA_WITH_NUM_CTX, "/v1", "llama3.1", Said(16384)),
    "ollama, not loaded": (servers.OLLAMA_NOT_LOADED, "/v1", "llama3.1", None),
    "lm studio": (servers.LM_STUDIO, "/v1", "qwen3-8b", Said(12288)),
    "openrouter": (servers.OPENROUTER, "/api/v1", "deepseek/deepseek-chat-v3.1", Said(131072, 32768)),
    "litellm": (servers.LITELLM, "/v1", "gpt-5", Said(272000, 128000, excludes_answer=None)),
    "groq": (servers.GROQ, "/openai/v1", "llama-3.3-70b-versatile", Said(131072, 32768)),
    "mistral": (servers.MISTRAL, "/v1", "mistral-small-latest", Said(131072)),
    "together": (servers.TOGETHER, "/v1", "moonshotai/Kimi-K2", Said(262144)),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("answers", "path", "model", "meant"), TELLING.values(), ids=TELLING)
async def test_each_kind_of_server_is_asked_until_it_tells(
    answers: dict[str, object], path: str, model: str, meant: Said | None, packed: bool
) -> None:
    async with serving(Server(answers, packed=packed)) as server, asker(server.port, path) as ask:
        assert await ask.hears(model) == meant


async def test_a_list_that_tells_is_all_that_is_asked() -> None:
    async with serving(Server(servers.SGLANG)) as server, asker(server.port) as ask:
        await ask.hears("Qwen/Qwen3-32B")
        assert server.paths == ["/v1/models"]


async def test_what_has_answered_is_asked_first_the_next_time() -> None:
    async with serving(Server(servers.LITELLM)) as server, asker(server.port) as ask:
        await ask.hears("gpt-5")
        assert len(server.paths) > 1
        server.asked.clear()
        ask.clock.now += AGAIN_AFTER
        await ask.hears("gpt-5")
        assert server.paths == ["/model/info"]


async def test_paths_of_other_servers_are_tried_once_not_for_every_model() -> None:
    async with serving(Server({"/v1/models": {"data": []}})) as server, asker(server.port) as ask:
        for model in ("a", "b", "c"):
            assert await ask.hears(model) is None
        assert len(server.paths) == len(set(server.paths)) + 2
        assert server.paths.count("/v1/models") == 3


async def test_only_a_server_that_lists_running_models_is_sent_a_model_s_name() -> None:
    async with serving(Server({"/v1/models": {"data": []}})) as server, asker(server.port) as ask:
        await ask.hears("m")
        assert {asked.method for asked in server.asked} == {"GET"}
    async with serving(Server(servers.OLLAMA_WITH_NUM_CTX)) as server, asker(server.port) as ask:
        await ask.hears('with "quotes"')
        [shown] = [asked for asked in server.asked if asked.path == "/api/show"]
        assert (shown.method, shown.body) == ("POST", rb'{"model":"with \"quotes\""}')


async def test_a_model_that_is_loaded_later_is_heard_of_later() -> None:
    async with serving(Server(servers.OLLAMA_NOT_LOADED)) as server, asker(server.port) as ask:
        assert await ask.hears("llama3.1") is None
        server.answers = servers.OLLAMA_LOADED
        assert await ask.hears("llama3.1") is None  # not yet due
        ask.clock.now += PAUSES[0]
        assert await ask.hears("llama3.1") == Said(4096)


async def test_it_is_asked_again_after_an_hour() -> None:
    async with serving(Server(servers.VLLM)) as server, asker(server.port) as ask:
        model = "meta-llama/Llama-3.1-8B-Instruct"
        await ask.hears(model)
        ask.clock.now += AGAIN_AFTER - 1
        await ask.hears(model)
        assert len(server.asked) == 1
        server.answers = {"/v1/models": {"data": [{"id": model, "max_model_len": 16384}]}}
        ask.clock.now += 1
        assert await ask.hears(model) == Said(16384)


async def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    async with serving(Server(servers.VLLM)) as server, asker(server.port) as ask:
        for _ in range(2):
            await ask.hears("my-lora")
            ask.clock.now -= 1e6
        assert server.paths.count("/v1/models") == 2


async def test_what_tells_nothing_is_asked_less_and_less_often() -> None:
    async with serving(Server(servers.VLLM)) as server, asker(server.port) as ask:
        for pause in (*PAUSES, PAUSES[-1]):
            await ask.hears("my-lora")
            asked = len(server.asked)
            ask.clock.now += pause - 1
            await ask.hears("my-lora")
            assert len(server.asked) == asked
            ask.clock.now += 1
        assert server.paths.count("/v1/models") == len(PAUSES) + 1


async def test_an_answer_that_does_not_come_again_leaves_what_was_said() -> None:
    async with serving(Server(servers.SGLANG)) as server, asker(server.port) as ask:
        assert await ask.hears("Qwen/Qwen3-32B") == Said(40960)
        server.answers = {}
        ask.clock.now += AGAIN_AFTER
        assert await ask.hears("Qwen/Qwen3-32B") == Said(40960)


async def _fails(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="oh no")


async def _shows_a_page(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>max_model_len</html>", content_type="text/html")


async def _breaks_off(_request: web.Request) -> web.StreamResponse:
    return web.Response(text='{"data":[{"id":"m","max_model_len":4096', content_type="application/json")


async def _is_not_what_it_says(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"not packed at all" * 10, headers={"Content-Encoding": "gzip"})


async def _leads_elsewhere(request: web.Request) -> web.StreamResponse:
    if request.path == "/elsewhere":
        return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})
    return web.Response(status=302, headers={"Location": "/elsewhere"})


async def _never_ends(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    await answer.write(b'{"data":[')
    while True:
        await answer.write(b'{"id":"another","max_model_len":4096},' * 10_000)


async def _refuses(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "bad key"}}, status=401)


BROKEN = [_fails, _shows_a_page, _breaks_off, _is_not_what_it_says, _leads_elsewhere, _never_ends, _refuses]


@pytest.mark.parametrize("behaviour", BROKEN, ids=lambda behaviour: behaviour.__name__)
async def test_a_broken_server_tells_nothing_and_does_no_harm(behaviour: Behaviour) -> None:
    async with serving(Server(behaviour=behaviour)) as server, asker(server.port) as ask:
        assert await ask.hears("m") is None
        assert server.asked
        assert "/elsewhere" not in server.paths
        # Once it is well again, it is heard.
        server.behaviour, server.answers = (
            None,
            {"/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}},
        )
        ask.clock.now += PAUSES[0]
        assert await ask.hears("m") == Said(4096)


async def test_whoever_is_refused_does_not_go_on_asking() -> None:
    async with serving(Server(behaviour=_refuses)) as server, asker(server.port) as ask:
        await ask.hears("m")
        assert server.paths == ["/v1/models"]


async def test_a_server_that_never_answers_is_given_up() -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(Server(behaviour=never)) as server, asker(server.port, limit=0.05) as ask:
        assert await ask.hears("m") is None
        assert len(server.asked) <= 1


async def test_bytes_that_are_not_http_tell_nothing() -> None:
    async with raw_upstream() as upstream:
        upstream.answer, upstream.close = [b"SSH-2.0-nonsense\r\n"], True
        async with asker(upstream.port) as ask:
            assert await ask.hears("m") is None


async def test_an_absent_server_is_tried_once() -> None:
    async with serving(Server()) as server:
        port = server.port
    async with asker(port) as ask:
        assert await ask.hears("m") is None


SILENT = [
    "api.openai.com",
    "me.openai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.deepseek.com",
]


@pytest.mark.parametrize("host", SILENT)
async def test_those_who_say_nothing_are_not_asked(host: str) -> None:
    async with serving(Server(servers.VLLM)) as server, asker(server.port, host=host) as ask:
        assert await ask.hears("my-lora") is None
        assert server.asked == []


@pytest.mark.parametrize("host", ["openrouter.ai", "api.groq.com", "api.mistral.ai"])
async def test_those_who_say_it_in_their_list_are_asked_for_nothing_else(host: str) -> None:
    async with serving(Server({"/v1/models": {"data": []}})) as server, asker(server.port, host=host) as ask:
        await ask.hears("m")
        assert server.paths == ["/v1/models"]


async def test_a_name_like_theirs_is_another_s() -> None:
    host = "api.openai.com.example"
    async with serving(Server(servers.SGLANG)) as server, asker(server.port, host=host) as ask:
        assert await ask.hears("Qwen/Qwen3-32B") == Said(40960)


async def test_fifty_requests_at_once_ask_once() -> None:
    async with serving(Server(servers.SGLANG)) as server, asker(server.port) as ask:
        for _ in range(50):
            ask.asking.about("Qwen/Qwen3-32B", KEY)
        await ask.asking.finished()
        for _ in range(50):
            ask.asking.about("Qwen/Qwen3-32B", KEY)
        await ask.asking.finished()
        assert len(server.asked) == 1


async def test_names_that_clients_make_up_are_not_asked_about_without_end() -> None:
    async with serving(Server(servers.VLLM)) as server, asker(server.port) as ask:
        ask.asking.about("", KEY)
        ask.asking.about("m" * 257, KEY)
        for number in range(1000):
            ask.asking.about(f"made-up-{number}", KEY)
        await ask.asking.finished()
        assert 0 < server.paths.count("/v1/models") <= 8


async def test_a_name_that_is_no_text_is_asked_about_all_the_same() -> None:
    async with serving(Server(servers.OLLAMA_NOT_LOADED)) as server, asker(server.port) as ask:
        assert await ask.hears("half a pair \ud83d") is None
        assert "/api/show" in server.paths


def holding(folder: Path, text: bytes) -> list[Path]:
    return [file for file in folder.iterdir() if text in file.read_bytes()]


async def test_the_caller_s_credential_is_used_once_and_kept_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    async with serving(Server(servers.SGLANG)) as server, asker(server.port, store=store) as ask:
        await ask.hears("Qwen/Qwen3-32B")
        await ask.writer.drain(PATIENCE)
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer sk-very-secret"]
        assert "sk-very-secret" not in repr(vars(ask.asking))
    await store.close()
    assert holding(tmp_path, b"SQLite") == [path]  # so it is there that is looked
    assert not holding(tmp_path, b"sk-very-secret")


async def test_a_caller_without_a_credential_may_ask_too() -> None:
    async with serving(Server(servers.SGLANG)) as server, asker(server.port) as ask:
        ask.asking.about("Qwen/Qwen3-32B", [])
        await ask.asking.finished()
        assert "authorization" not in server.asked[0].headers


async def test_a_restart_keeps_what_was_said(tmp_path: Path) -> None:
    async with serving(Server(servers.SGLANG)) as server:
        store = await SqliteStore.open(tmp_path / "state.db")
        async with asker(server.port, store=store) as ask:
            await ask.hears("Qwen/Qwen3-32B")
        await store.close()
        store = await SqliteStore.open(tmp_path / "state.db")
        async with asker(server.port, store=store) as ask:
            assert ask.asking.said_of("Qwen/Qwen3-32B") is None
            await asyncio.gather(*ask.asking.recalling("Qwen/Qwen3-32B"))
            assert ask.asking.said_of("Qwen/Qwen3-32B") == Said(40960)
        await store.close()
        assert len(server.asked) == 1


async def test_shutting_down_ends_what_is_being_asked() -> None:
    arrived = asyncio.Event()

    async def never(_request: web.Request) -> web.StreamResponse:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(Server(behaviour=never)) as server, asker(server.port) as ask:
        ask.asking.about("m", KEY)
        await arrived.wait()
        await ask.tasks.close(timeout=0)
        await ask.asking.finished()
