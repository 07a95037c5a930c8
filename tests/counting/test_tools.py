from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.parts import Countable
from proxy.counting.tools import DEEPEST, PER_LIST, PER_TOOL, tool_list

Schema = dict[str, Any]


def function(parameters: Any = None, **more: Any) -> Schema:
    described = {"name": "look", "description": "Looks.", "parameters": parameters, **more}
    return {"type": "function", "function": described}


def counted(tools: Any) -> tuple[int, list[str]]:
    """The fixed tokens together, and the texts, without empty ones."""
    found: list[Countable] = list(tool_list(tools))
    return (
        sum(each for each in found if isinstance(each, int)),
        [each for each in found if isinstance(each, str) and each],
    )


def inside(parameters: Any) -> tuple[int, list[str]]:
    """The same of a schema alone."""
    fixed, texts = counted([function(parameters)])
    assert texts[0] == "look:Looks."
    return fixed - PER_LIST - PER_TOOL, texts[1:]


def test_no_tools_cost_nothing() -> None:
    assert counted([]) == counted(None) == (0, [])


def test_openais_own_example_of_the_rule() -> None:
    """The cookbook's weather function, by hand."""
    weather = {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {"type": "string", "description": "The unit", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["location"],
        },
    }
    fixed, texts = counted([{"type": "function", "function": weather}])
    assert fixed == 12 + 7 + 3 + 3 + (3 - 3 + 3 + 3)
    assert texts == [
        "get_current_weather:Get the current weather in a given location",
        "location:string:The city and state, e.g. San Francisco, CA",
        "unit:string:The unit",
        "celsius",
        "fahrenheit",
    ]


def test_the_list_costs_once_and_each_tool_for_itself() -> None:
    assert counted([function()])[0] == PER_LIST + PER_TOOL
    assert counted([function()] * 5) == (PER_LIST + 5 * PER_TOOL, ["look:Looks."] * 5)


STRING = {"type": "string", "description": "d"}


@pytest.mark.parametrize(
    ("parameters", "fixed", "texts"),
    [
        (None, 0, []),
        ({}, 0, []),
        ({"type": "object", "properties": {}}, 0, []),
        ({"properties": {"a": STRING, "b": {}}}, 3 + 3 + 3, ["a:string:d", "b::"]),
        ({"properties": {"a": True}}, 3 + 3, ["a::"]),
        ({"properties": {"a": {"properties": {"b": STRING}}}}, 2 * (3 + 3), ["a::", "b:string:d"]),
        ({"properties": {"a": {"type": ["string", "null"]}}}, 3 + 3, ['a:["string","null"]:']),
        ({"properties": {"a": {"type": "array", "items": STRING}}}, 3 + 3 + 3, ["a:array:", ":string:d"]),
        ({"properties": {"a": {"prefixItems": [STRING]}}}, 3 + 3 + 3, ["a::", ":string:d"]),
        ({"properties": {"a": {"$ref": "#/$defs/B"}}}, 3 + 3, ["a:#/$defs/B:"]),
        ({"$defs": {"B": STRING}}, 3 + 3, ["B:string:d"]),
        ({"definitions": {"B": STRING}}, 3 + 3, ["B:string:d"]),
        ({"patternProperties": {"^x": STRING}}, 3 + 3, ["^x:string:d"]),
        ({"additionalProperties": STRING}, 3, [":string:d"]),
        ({"additionalProperties": False}, 0, []),
        ({"anyOf": [STRING, {"type": "null"}]}, 3 + 3, [":string:d", ":null:"]),
        ({"oneOf": [STRING], "allOf": [STRING]}, 3 + 3, [":string:d", ":string:d"]),
        ({"enum": ["x", 1, None]}, -3 + 3 * 3, ["x", "1", "null"]),
        ({"const": "x"}, -3 + 3, ["x"]),
        ({"enum": []}, 0, []),
        # Not as they should be, and counted all the same.
        ({"properties": {"a": {"description": {"en": "d"}}}}, 3 + 3, ['a::{"en":"d"}']),
        ('{"type":"object"}', 0, ['{"type":"object"}']),
        ([1], 0, ["[1]"]),
        ({"enum": "x", "properties": [1], "anyOf": "y"}, 0, []),
    ],
)
def test_a_schema_is_counted_to_its_depths(parameters: Any, fixed: int, texts: list[str]) -> None:
    assert inside(parameters) == (fixed, texts)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": STRING}},
        {"name": "look", "description": "Looks.", "parameters": STRING},  # one of the old `functions`
        {"name": "look", "description": "Looks.", "input_schema": STRING},
        {"type": "custom", "custom": {"name": "look", "description": "Looks."}},
    ],
)
def test_a_tool_is_found_wherever_it_is_described(tool: Schema) -> None:
    assert counted([tool]) == (PER_LIST + PER_TOOL, ["look:Looks."])


def test_all_spellings_of_a_schemas_place_count_the_same() -> None:
    schema = {"properties": {"a": STRING}}
    tool = {"name": "look", "description": "Looks."}
    assert counted([{**tool, "input_schema": schema}]) == counted([function(schema)])


def test_a_custom_tools_grammar_is_counted() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}
    tool = {"type": "custom", "custom": {"name": "look", "format": grammar}}
    assert counted([tool]) == (PER_LIST + PER_TOOL, ["look:", orjson.dumps(grammar).decode()])


@pytest.mark.parametrize(
    "tool",
    [{"type": "web_search"}, {"type": "function", "function": {"name": 7}}, {"function": None}, 7, "x"],
)
def test_a_tool_of_no_known_shape_is_counted_by_its_json(tool: Any) -> None:
    assert counted([tool]) == (PER_LIST + PER_TOOL, [orjson.dumps(tool).decode()])


@pytest.mark.parametrize("tools", ["x", {"a": 1}, 7, True])
def test_what_is_no_list_is_counted_by_its_json(tools: Any) -> None:
    assert counted(tools) == (0, [orjson.dumps(tools).decode()])


def test_below_a_great_depth_the_json_is_counted() -> None:
    schema: Schema = {"type": "string", "description": "bottom"}
    for _ in range(2 * DEEPEST):
        schema = {"properties": {"a": schema}}
    fixed, texts = inside(schema)
    assert fixed == (3 + 3) * (DEEPEST + 1)
    assert texts[:-1] == ["a::"] * (DEEPEST + 1)
    assert "bottom" in texts[-1]


TOOL_KEYS = ["name", "function", "custom", "parameters", "input_schema", "description", "format"]
SCHEMA_KEYS = ["type", "properties", "items", "enum", "const", "anyOf", "$defs"]
KEYS = st.sampled_from([*TOOL_KEYS, *SCHEMA_KEYS])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@given(JSON)
def test_any_json_is_counted_and_never_below_nothing(tools: Any) -> None:
    assert counted(tools) == counted(tools)
    assert counted(tools)[0] >= 0
