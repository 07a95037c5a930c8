from __future__ import annotations

import pytest

from proxy.usage import Usage, usage_from


def test_details_are_read() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    assert usage_from({"usage": usage}) == Usage(100, 20, cached=64, reasoning=5)


def test_deepseeks_own_cache_field_is_read() -> None:
    assert usage_from({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}) == Usage(9, 0, cached=4)


def test_where_more_is_cached_than_there_is_in_all_it_was_counted_beside_the_rest() -> None:
    usage = {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 500}}
    assert usage_from({"usage": usage}) == Usage(505, 0, cached=500)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"usage": None},
        {"usage": []},
        {"usage": {}},
        {"usage": {"prompt_tokens": "7"}},
        {"usage": {"prompt_tokens": True}},
        {"usage": {"prompt_tokens": -1}},
        {"usage": {"prompt_tokens": 1e300}},
        {"usage": {"prompt_tokens": float("nan")}},
    ],
)
def test_what_makes_no_sense_is_no_usage(answer: object) -> None:
    assert usage_from(answer) is None


def test_odd_details_do_not_spoil_the_rest() -> None:
    usage = {"prompt_tokens": 5.0, "completion_tokens": None, "prompt_tokens_details": "none"}
    assert usage_from({"usage": usage}) == Usage(5, 0)
