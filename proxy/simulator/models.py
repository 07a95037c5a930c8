"""The list of models."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from proxy.simulator.answers import Answer, json_answer
from proxy.simulator.chat import CREATED
from proxy.simulator.recorder import ReceivedRequest
from proxy.simulator.validate import model_not_found


class Models:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def listing(self, received: ReceivedRequest) -> Answer:
        return json_answer({"object": "list", "data": [_model(name) for name in self._names]})

    def one(self, received: ReceivedRequest, quoted_name: str) -> Answer:
        name = unquote(quoted_name)
        if name not in self._names:
            raise model_not_found(name)
        return json_answer(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}
