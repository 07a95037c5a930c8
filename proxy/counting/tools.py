"""What the definitions of tools cost: OpenAI's published rule for gpt-4o, carried on into nested schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.counting.parts import Countable, json_text

PER_LIST = 12
PER_TOOL = 7
PER_OBJECT = 3  # once where there are properties
PER_PROPERTY = 3
PER_CHOICE = 3
FOR_CHOICES = -3  # an enumeration takes the place of something

# Deeper schemas are counted by their JSON: recursion has an end, whatever is sent.
DEEPEST = 24


def tool_list(tools: Any) -> Iterator[Countable]:
    """The `tools` of a request, or the `functions` that they were before."""
    if not isinstance(tools, list):
        if tools is not None:
            yield json_text(tools)
        return
    if tools:
        yield PER_LIST
    for tool in tools:
        yield from _tool(tool)


def _tool(tool: Any) -> Iterator[Countable]:
    yield PER_TOOL
    function = _described(tool)
    if function is None:
        yield json_text(tool)
        return
    yield f"{function['name']}:{_text(function.get('description'))}"
    yield from _parameters(function.get("parameters", function.get("input_schema")))
    if "format" in function:  # of a custom tool: often a whole grammar
        yield json_text(function["format"])


def _described(tool: Any) -> dict[str, Any] | None:
    """Where the tool is described: under its type, or in itself as in the old `functions`."""
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function", tool.get("custom", tool))
    return inner if isinstance(inner, dict) and isinstance(inner.get("name"), str) else None


def _parameters(schema: Any) -> Iterator[Countable]:
    if isinstance(schema, dict):
        yield from _inner(schema, 0)
    else:
        yield _text(schema)


def _inner(schema: dict[str, Any], depth: int) -> Iterator[Countable]:
    """What stands inside a schema; its own name, type and description are already counted."""
    if depth > DEEPEST:
        yield json_text(schema)
        return
    yield from _choices([schema["const"]] if "const" in schema else schema.get("enum"))
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        properties = schema.get(key)
        if isinstance(properties, dict) and properties:
            yield PER_OBJECT
            for name, property_schema in properties.items():
                yield from _property(name, property_schema, depth + 1)
    for nested in _nested(schema):
        yield from _property("", nested, depth + 1)


def _nested(schema: dict[str, Any]) -> Iterator[Any]:
    for key in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"):
        value = schema.get(key)
        found = value if isinstance(value, list) else [value]
        yield from (each for each in found if isinstance(each, dict))


def _property(name: str, schema: Any, depth: int) -> Iterator[Countable]:
    own = schema if isinstance(schema, dict) else {}  # `true` and `false` are schemas too
    yield PER_PROPERTY
    yield f"{name}:{_text(own.get('type', own.get('$ref')))}:{_text(own.get('description'))}"
    yield from _inner(own, depth)


def _text(value: Any) -> str:
    """Where text is expected, in whatever shape it has come."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def _choices(choices: Any) -> Iterator[Countable]:
    if not isinstance(choices, list) or not choices:
        return
    yield FOR_CHOICES
    for choice in choices:
        yield PER_CHOICE
        yield choice if isinstance(choice, str) else json_text(choice)  # null is a choice too
