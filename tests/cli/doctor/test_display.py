from __future__ import annotations

import json

from proxy.cli.doctor.display import as_json, lines
from proxy.cli.doctor.finding import any_fails, fails, gravest, passes, warns

GOOD = passes("port", "it is free")
DOUBTFUL = warns("key", "not set", "set it")
BAD = fails("a longer name", "gone", "bring it back")


def test_each_check_has_its_line_and_what_to_do_below_it() -> None:
    assert [*lines([GOOD, DOUBTFUL, BAD], colour=False)] == [
        "pass  port           it is free",
        "warn  key            not set",
        "                     set it",
        "fail  a longer name  gone",
        "                     bring it back",
        "",
        "1 passed, 1 warned, 1 failed",
    ]


def test_colours_are_only_in_the_verdict() -> None:
    plain, coloured = lines([BAD], colour=False), lines([BAD], colour=True)
    assert next(coloured) == next(plain).replace("fail", "\x1b[31mfail\x1b[0m")
    assert [*coloured] == [*plain]


def test_what_a_server_says_does_not_steer_the_terminal() -> None:
    line = next(lines([passes("store server", "Valkey 9\x1b[2J\r\n")], colour=False))
    assert line == "pass  store server  Valkey 9?[2J??"


def test_the_same_as_json() -> None:
    told = json.loads(as_json([GOOD, DOUBTFUL], healthy=True))
    assert told == {
        "healthy": True,
        "checks": [
            {"name": "port", "verdict": "pass", "found": "it is free", "hint": None},
            {"name": "key", "verdict": "warn", "found": "not set", "hint": "set it"},
        ],
    }


def test_the_gravest_is_the_first_of_the_worst() -> None:
    assert gravest([GOOD, DOUBTFUL, GOOD]) is DOUBTFUL
    assert gravest([DOUBTFUL, BAD, fails("x", "y", "z")]) is BAD


def test_warnings_are_no_failure() -> None:
    assert not any_fails([GOOD, DOUBTFUL])
    assert any_fails([GOOD, BAD])
