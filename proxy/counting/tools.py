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
    function = _described(tool)
    if function is None:
        yield PER_TOOL
        yield json_text(tool)
        return
    yield PER_TOOL
    yield f"{function['name']}:{function.get('description') or ''}"
    parameters = function.get("parameters")
    if isinstance(parameters, dict):
        yield from _inner(parameters, 0)
    if "format" in function:  # of a custom tool: often a whole grammar
        yield json_text(function["format"])


def _described(tool: Any) -> dict[str, Any] | None:
    """Where the tool is described: under its type, or in itself as in the old `functions`."""
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function", tool.get("custom", tool))
    return inner if isinstance(inner, dict) and isinstance(inner.get("name"), str) else None


def _inner(schema: dict[str, Any], depth: int) -> Iterator[Countable]:
    """What stands inside a schema; its own name, type and description are already counted."""
    if depth > DEEPEST:
        yield json_text(schema)
        return
    yield from _choices(schema.get("enum"))
    for key in ("properties", "$defs", "definitions"):
        properties = schema.get(key)
        if isinstance(properties, dict) and properties:
            yield PER_OBJECT
            for name, property_schema in properties.items():
                yield from _property(name, property_schema, depth + 1)
    for nested in _nested(schema):
        yield from _property("", nested, depth + 1)


def _nested(schema: dict[str, Any]) -> Iterator[Any]:
    for key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
        value = schema.get(key)
        found = value if isinstance(value, list) else [value]
        yield from (each for each in found if isinstance(each, dict))


def _property(name: str, schema: Any, depth: int) -> Iterator[Countable]:
    own = schema if isinstance(schema, dict) else {}  # `true` and `false` are schemas too
    yield PER_PROPERTY
    yield f"{name}:{_type(own)}:{own.get('description') or ''}"
    yield from _inner(own, depth)


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", schema.get("$ref", ""))
    return kind if isinstance(kind, str) else json_text(kind)


def _choices(choices: Any) -> Iterator[Countable]:
    if not isinstance(choices, list) or not choices:
        return
    yield FOR_CHOICES
    for choice in choices:
        yield PER_CHOICE
        yield choice if isinstance(choice, str) else json_text(choice)
