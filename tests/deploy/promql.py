"""As much of PromQL as it takes to see what a query names. Whether it is valid, promtool says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#.*)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>[0-9.][\w.]*)
      | (?P<name>[a-zA-Z_:][\w:]*)
      | (?P<range>\[[^\]]*\])
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},@])""",
    re.VERBOSE,
)
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_AFTER_A_FUNCTION = frozenset({"(", "by", "without"})
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"})


@dataclass(frozen=True, slots=True)
class Matcher:
    label: str
    sign: str
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    metric: str
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    selectors: tuple[Selector, ...]
    grouped_by: frozenset[str]


def read(query: str) -> Query:
    tokens = list(_tokens(query))
    selectors: list[Selector] = []
    grouped_by: set[str] = set()
    at = 0
    while at < len(tokens):
        word = tokens[at]
        follower = tokens[at + 1] if at + 1 < len(tokens) else ""
        at += 1
        if word in _GROUPING and follower == "(":
            end = tokens.index(")", at)
            grouped_by.update(label for label in tokens[at + 1 : end] if label != ",")
            at = end + 1
        elif word == "{":
            raise ValueError(f"a selector names no metric: {query}")
        elif _is_name(word) and word not in _WORDS | _GROUPING and follower not in _AFTER_A_FUNCTION:
            matchers: tuple[Matcher, ...] = ()
            if follower == "{":
                end = tokens.index("}", at)
                matchers = _matchers(tokens[at + 1 : end])
                at = end + 1
            selectors.append(Selector(word, matchers))
    return Query(tuple(selectors), frozenset(grouped_by))


def _tokens(query: str) -> Iterator[str]:
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise ValueError(f"not understood: {query[at:]}")
        if found.lastgroup not in ("space", "range"):
            yield found[0]
        at = found.end()


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_:"


def _matchers(tokens: Sequence[str]) -> tuple[Matcher, ...]:
    said = [token for token in tokens if token != ","]
    return tuple(
        Matcher(label, sign, value[1:-1])
        for label, sign, value in zip(said[::3], said[1::3], said[2::3], strict=True)
    )
