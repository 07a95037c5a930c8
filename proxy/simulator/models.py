"""The list of models."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from proxy.simulator.answers import Answer, json_answer
from proxy.simulator.chat import CREATED
from proxy.simulator.config import SimulatorConfig
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.validate import model_not_found


class Models:
    def __init__(self, config: SimulatorConfig) -> None:
        self._names = config.model_names
        self._config = config

    def listing(self, received: ReceivedRequest) -> Answer:
        return json_answer({"object": "list", "data": [self._model(name) for name in self._names]})

    def one(self, received: ReceivedRequest, quoted_name: str) -> Answer:
        name = unquote(quoted_name)
        if name not in self._names:
            raise model_not_found(name)
        return json_answer(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        told = {"max_model_len": self._config.window_of(name)} if self._config.tells_window else {}
        return {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator", **told}
