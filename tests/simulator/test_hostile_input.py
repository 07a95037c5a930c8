"""Whatever JSON comes, the simulator answers or refuses; it never falls over."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulator import Answer, ReceivedRequest, SimulatorConfig
from proxy.simulator.answers import ApiError
from proxy.simulator.routes import Routes
from proxy.simulator.summaries import SummaryModel
from proxy.simulator.tokens import RoughCounter

CONFIG = SimulatorConfig(counting="rough", cache_min_tokens=1)
ROUTES = Routes(CONFIG, RoughCounter(), SummaryModel(CONFIG, RoughCounter()))

anything: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2.5, 10**18, "", "x", [], {}, [None], [[1]], {"x": None}, [{}]]
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 19).flatmap(lambda dice: usual if dice else anything)


def fields(**usual: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: mostly(value) for name, value in usual.items()})


parameters = fields(properties=fields(x=fields(type=st.just("string"), enum=st.lists(st.text(max_size=3)))))
tools = fields(function=fields(name=st.just("look"), parameters=parameters))
calls = fields(id=st.just("a"), function=fields(name=st.just("look"), arguments=st.just("{}")))
parts = fields(text=st.just("hi")) | fields(image_url=fields(detail=st.just("low")))
spoken = fields(
    role=st.sampled_from(["user", "system"]),
    content=st.sampled_from(["call:look", "⟦transcript⟧"]) | st.lists(mostly(parts)),
)
called = fields(role=st.just("assistant"), tool_calls=st.lists(mostly(calls), max_size=1))
result = fields(role=st.just("tool"), tool_call_id=st.just("a"), content=st.just("seen"))
histories = st.tuples(mostly(spoken), mostly(called), mostly(result), mostly(spoken)).flatmap(
    lambda messages: st.integers(1, 4).map(lambda length: list(messages[:length]))
)
chats = fields(
    model=st.just("m"),
    messages=histories,
    tools=st.lists(mostly(tools), max_size=2),
    tool_choice=st.sampled_from(["none", "auto", "required"]) | tools,
    stream=st.just(True),
    stream_options=fields(include_usage=st.booleans()),
    max_tokens=st.integers(1, 9),
    n=st.integers(1, 3),
)
embeddings = fields(
    model=st.just("m"), input=st.text(), encoding_format=st.just("base64"), dimensions=st.integers(1, 9)
)


def answered(path: str, body: Any) -> Answer | ApiError:
    return answered_to(orjson.dumps(body), path)


def answered_to(body: bytes, path: str = "chat/completions") -> Answer | ApiError:
    try:
        return ROUTES.answer(ReceivedRequest("POST", f"/v1/{path}", (), body, 1))
    except ApiError as refused:
        return refused


@given(mostly(chats))
def test_any_chat_request_is_answered_or_refused(body: Any) -> None:
    assert answered("chat/completions", body)


@pytest.mark.parametrize("depth", [100, *range(240, 260), 1_000])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"function": {"name": "look", "parameters": "deep"}}]}, "tools"),
        ({"messages": [{"role": "user", "content": [{"deep": "deep"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "hi", "deep": "deep"}]}, "messages"),
    ],
)
def test_what_is_nested_too_deeply_is_refused(body: dict[str, Any], param: str, depth: int) -> None:
    usual = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    deep = orjson.dumps(usual | body).replace(b'"deep"}', b'{"a":' * depth + b"1" + b"}" * (depth + 1))
    found = answered_to(deep)
    if isinstance(found, Answer):
        assert depth < 255
    else:
        assert (found.status, found.error["param"]) == (400, param)
        assert depth > 200


@given(mostly(embeddings))
def test_any_embedding_request_is_answered_or_refused(body: Any) -> None:
    assert answered("embeddings", body)
