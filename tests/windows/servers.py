"""Servers that say how large their windows are, in the bodies that their makers document."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

VLLM = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "meta-llama/Llama-3.1-8B-Instruct",
                "object": "model",
                "created": 1763480000,
                "owned_by": "vllm",
                "root": "meta-llama/Llama-3.1-8B-Instruct",
                "parent": None,
                "max_model_len": 32768,
                "permission": [{"id": "modelperm-1", "object": "model_permission", "allow_sampling": True}],
            },
            {"id": "my-lora", "object": "model", "owned_by": "vllm", "max_model_len": None},
        ],
    }
}
SGLANG = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "Qwen/Qwen3-32B",
                "object": "model",
                "created": 1763480000,
                "owned_by": "sglang",
                "root": "Qwen/Qwen3-32B",
                "max_model_len": 40960,
            }
        ],
    }
}
LLAMA_CPP = {
    "/v1/models": {
        "models": [{"name": "model.gguf", "model": "model.gguf", "type": "model"}],
        "object": "list",
        "data": [
            {
                "id": "model.gguf",
                "object": "model",
                "created": 1763480000,
                "owned_by": "llamacpp",
                "meta": {
                    "vocab_type": 2,
                    "n_vocab": 128256,
                    "n_ctx": 8192,
                    "n_ctx_train": 131072,
                    "n_embd": 4096,
                    "n_params": 8030261312,
                    "size": 4912898304,
                },
            }
        ],
    }
}
LLAMA_CPP_OF_OLD = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "model.gguf",
                "object": "model",
                "owned_by": "llamacpp",
                "meta": {"vocab_type": 2, "n_vocab": 128256, "n_ctx_train": 131072, "n_embd": 4096},
            }
        ],
    },
    "/props": {
        "default_generation_settings": {"id": 0, "id_task": -1, "n_ctx": 1024, "speculative": False},
        "total_slots": 4,
        "model_path": "models/model.gguf",
        "chat_template": "{% for message in messages %}…",
    },
}
_OLLAMA_LIST = {
    "object": "list",
    "data": [{"id": "llama3.1:latest", "object": "model", "created": 1763480000, "owned_by": "library"}],
}
_OLLAMA_CARD = {
    "modelfile": "FROM …",
    "parameters": 'num_ctx                        16384\nstop                           "<|eot_id|>"',
    "template": "{{ .Prompt }}",
    "details": {"family": "llama", "parameter_size": "8.0B"},
    "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
    "capabilities": ["completion", "tools"],
}
OLLAMA_LOADED = {
    "/v1/models": _OLLAMA_LIST,
    "/api/ps": {
        "models": [
            {
                "name": "llama3.1:latest",
                "model": "llama3.1:latest",
                "size": 6654289920,
                "digest": "46e0c10c039e",
                "details": {"format": "gguf", "family": "llama"},
                "expires_at": "2026-11-18T17:00:00Z",
                "size_vram": 6654289920,
                "context_length": 4096,
            }
        ]
    },
    "/api/show": _OLLAMA_CARD,
}
OLLAMA_WITH_NUM_CTX = {**OLLAMA_LOADED, "/api/ps": {"models": []}}
OLLAMA_NOT_LOADED = {
    **OLLAMA_WITH_NUM_CTX,
    "/api/show": {**_OLLAMA_CARD, "parameters": 'stop                           "<|eot_id|>"'},
}
_UNEXPECTED = {"error": "Unexpected endpoint or method."}
LM_STUDIO = {
    "/v1/models": {"object": "list", "data": [{"id": "qwen3-8b", "object": "model", "owned_by": "me"}]},
    # It answers what it does not know with 200.
    "/api/ps": _UNEXPECTED,
    "/api/show": _UNEXPECTED,
    "/props": _UNEXPECTED,
    "/api/v0/models": {
        "object": "list",
        "data": [
            {
                "id": "qwen2-vl-7b-instruct",
                "object": "model",
                "type": "vlm",
                "state": "not-loaded",
                "max_context_length": 32768,
            },
            {
                "id": "qwen3-8b",
                "object": "model",
                "type": "llm",
                "publisher": "lmstudio-community",
                "arch": "qwen3",
                "state": "loaded",
                "max_context_length": 40960,
                "loaded_context_length": 12288,
            },
        ],
    },
}
OPENROUTER = {
    "/api/v1/models": {
        "data": [
            {
                "id": "deepseek/deepseek-chat-v3.1",
                "canonical_slug": "deepseek/deepseek-chat-v3.1",
                "context_length": 163840,
                "architecture": {"modality": "text->text", "tokenizer": "DeepSeek"},
                "pricing": {"prompt": "0.0000002", "completion": "0.0000008"},
                "top_provider": {
                    "context_length": 131072,
                    "max_completion_tokens": 32768,
                    "is_moderated": False,
                },
                "per_request_limits": None,
            }
        ]
    }
}
LITELLM = {
    "/v1/models": {
        "data": [{"id": "gpt-5", "object": "model", "created": 1677610602, "owned_by": "openai"}],
        "object": "list",
    },
    "/model/info": {
        "data": [
            {
                "model_name": "gpt-5",
                "litellm_params": {"model": "azure/gpt-5"},
                "model_info": {
                    "id": "f8a0",
                    "max_tokens": 128000,
                    "max_input_tokens": 272000,
                    "max_output_tokens": 128000,
                },
            },
            {
                "model_name": "gpt-5",
                "litellm_params": {"model": "openai/gpt-5"},
                "model_info": {"id": "77c1", "max_input_tokens": 400000, "max_output_tokens": None},
            },
        ]
    },
}
GROQ = {
    "/openai/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "llama-3.3-70b-versatile",
                "object": "model",
                "owned_by": "Meta",
                "active": True,
                "context_window": 131072,
                "max_completion_tokens": 32768,
            }
        ],
    }
}
MISTRAL = {
    "/v1/models": {
        "object": "list",
        "data": [
            {
                "id": "mistral-small-2506",
                "object": "model",
                "owned_by": "mistralai",
                "capabilities": {"completion_chat": True},
                "aliases": ["mistral-small-latest"],
                "max_context_length": 131072,
            }
        ],
    }
}
TOGETHER = {
    "/v1/models": [
        {
            "id": "moonshotai/Kimi-K2",
            "object": "model",
            "type": "chat",
            "context_length": 262144,
            "pricing": {},
        }
    ]
}

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    """Answers what it knows with JSON, or as it is told to, and everything else with 404."""

    answers: Mapping[str, object] = field(default_factory=dict)
    behaviour: Behaviour | None = None
    packed: bool = False
    port: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.method, request.path_qs, headers, await request.read()))
        if self.behaviour is not None:
            return await self.behaviour(request)
        if request.path not in self.answers:
            return web.json_response({"detail": "Not Found"}, status=404)
        answer = web.json_response(self.answers[request.path])
        if self.packed:
            answer.body = gzip.compress(_bytes(answer))
            answer.headers["Content-Encoding"] = "gzip"
        return answer


def _bytes(answer: web.Response) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.Request)
        return await server.answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = _port(runner)
    try:
        yield server
    finally:
        await runner.cleanup()


def _port(runner: web.AppRunner) -> int:
    address: Any = runner.addresses[0]
    return int(address[1])
