"""Whatever JSON comes, the simulator answers or refuses; it never falls over."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulator import Answer, ReceivedRequest, SimulatorConfig
from proxy.simulator.answers import ApiError
from proxy.simulator.routes import Routes
from proxy.simulator.validate import ROLES

ROUTES = Routes(SimulatorConfig(counting="rough", cache_min_tokens=1, refuses_unknown_parameters=False))

anything = st.sampled_from(
    [None, True, 0, -1, 2.5, 10**18, "", "x", [], {}, [None], [[1]], {"x": None}, [{}]]
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda dice: usual if dice else anything)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: mostly(value) for name, value in fields.items()})


ids = st.sampled_from(["a", "b"])
functions = some_of(
    name=st.just("look"),
    description=anything,
    arguments=st.just("{}"),
    parameters=some_of(properties=some_of(x=some_of(type=anything, enum=st.lists(anything)))),
)
calls = some_of(id=ids, type=st.just("function"), function=functions)
parts = some_of(type=anything, text=anything, image_url=some_of(url=anything, detail=anything))
messages = some_of(
    role=st.sampled_from(ROLES),
    content=st.just("call:look") | st.lists(mostly(parts)),
    tool_calls=st.lists(mostly(calls), max_size=2),
    tool_call_id=ids,
    name=anything,
)
chats = some_of(
    messages=st.lists(mostly(messages), max_size=4),
    tools=st.lists(mostly(some_of(type=anything, function=functions)), max_size=2),
    tool_choice=st.sampled_from(["none", "auto", "required"]) | some_of(function=functions),
    stream=st.booleans(),
    stream_options=some_of(include_usage=st.booleans()),
    max_tokens=st.integers(-1, 9),
    max_completion_tokens=anything,
    n=st.integers(-1, 3),
)


def answered(path: str, body: Any) -> Answer | ApiError:
    try:
        return ROUTES.answer(ReceivedRequest("POST", f"/v1/{path}", (), orjson.dumps(body), 1))
    except ApiError as refused:
        return refused


@given(chats)
def test_any_chat_request_is_answered_or_refused(body: dict[str, Any]) -> None:
    assert answered("chat/completions", {"model": "m", **body})


@given(mostly(some_of(input=st.text(), encoding_format=st.just("base64"), dimensions=st.integers(1, 9))))
def test_any_embedding_request_is_answered_or_refused(body: Any) -> None:
    assert answered("embeddings", body)
