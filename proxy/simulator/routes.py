"""Which room answers which path."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from proxy.simulator.answers import Answer, ApiError
from proxy.simulator.chat import Chat
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.echo import echo
from proxy.simulator.embeddings import Embeddings
from proxy.simulator.files import Files
from proxy.simulator.models import Models
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.summaries import SummaryModel
from proxy.simulator.tokens import Counter


@dataclass(frozen=True, slots=True)
class Route:
    path: re.Pattern[str]
    methods: dict[str, Callable[..., Answer]]  # "*" is any method


class Routes:
    def __init__(self, config: SimulatorConfig, counter: Counter, summaries: SummaryModel) -> None:
        files = Files(config.max_kept_file)
        models = Models(config)
        self._routes = [
            _route("/chat/completions", POST=Chat(config, counter, summaries).answer),
            _route("/models", GET=models.listing),
            _route("/models/(.+)", GET=models.one),
            _route("/embeddings", POST=Embeddings(counter, config.tokenizer_factor).answer),
            _route("/files", POST=files.upload, GET=files.listing),
            _route("/files/([^/]+)", GET=files.one, DELETE=files.delete),
            _route("/files/([^/]+)/content", GET=files.content),
            _route("/echo(?:/.*)?", **{"*": echo}),
        ]

    def answer(self, received: ReceivedRequest) -> Answer:
        for route in self._routes:
            if found := route.path.fullmatch(received.route):
                return _handler(route, received)(received, *found.groups())
        text = f"Invalid URL ({received.method} {received.route})"
        raise ApiError(text, status=404, code="unknown_url")


def _route(path: str, **methods: Callable[..., Answer]) -> Route:
    return Route(re.compile("/v1" + path), methods)


def _handler(route: Route, received: ReceivedRequest) -> Callable[..., Answer]:
    method = "GET" if received.method == "HEAD" else received.method
    handler = route.methods.get(method) or route.methods.get("*")
    if handler is None:
        hint = "(HINT: Perhaps you meant to use a different HTTP method?)"
        text = f"Not allowed to {received.method} on {received.route}. {hint}"
        raise ApiError(text, status=405, code="method_not_supported")
    return handler
