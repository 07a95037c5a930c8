from __future__ import annotations

import json
import subprocess
import sys
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.counting.intricacy import MOST_VALUES, is_intricate

values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab,[{"\\')),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("x{,", max_size=3), inner, max_size=4)
    ),
    max_leaves=40,
)


def parts(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(parts, value))
    if isinstance(value, dict):
        return 1 + sum(1 + parts(each) for each in value.values())
    return 1


@given(values, st.integers(1, 60))
def test_whatever_is_let_through_has_no_more_values_than_allowed(value: Any, most: int) -> None:
    if not is_intricate(json.dumps(value).encode(), most):
        assert parts(value) <= 2 * most + 1


@given(values)
def test_a_value_is_let_through_where_there_is_room_for_its_strings_and_commas(value: Any) -> None:
    assert not is_intricate(json.dumps(value).encode(), 3 * parts(value) + 1)


@pytest.mark.parametrize(
    "json",
    [
        b'["' + b'a, b, [c], {d}\\" ' * MOST_VALUES + b'"]',
        b"[" + b",".join([b'{"role":"user","content":"a, b, c, d, e, f, [g], {h}"}'] * 10_000) + b"]",
    ],
)
def test_punctuation_in_a_text_is_text(json: bytes) -> None:
    assert not is_intricate(json)


@pytest.mark.parametrize("crumb", [b"1,", b"{},", b'"",', b"[[[[]]]],", b" 1 , ", b'{"a":{}},'])
def test_megabytes_of_crumbs_are_noticed_soon(crumb: bytes) -> None:
    json = b"[" + crumb * (16 * 1024**2 // len(crumb)) + b"1]"
    began = thread_time()
    assert is_intricate(json)
    assert thread_time() - began < 2


def test_a_body_of_crumbs_is_counted_in_little_memory() -> None:
    """In a process of its own that may not have more: parsing it would need six hundred megabytes."""
    code = """
import asyncio, resource
from proxy.counting.framing import Scheme
from tests.counting.peers import ALICE, life, read
resource.setrlimit(resource.RLIMIT_AS, (600 * 2**20,) * 2)
crumbs = b"[" + b"1," * 5_000_000 + b"1]"
async def main():
    async with life() as one:
        for body in (b'{"messages":%b}' % crumbs, b'{"messages":[],"tools":%b}' % crumbs):
            found = await one.measure(ALICE, read(body, compressed=False), Scheme())
            estimate = found.measured.prompt.estimate
            assert estimate.rough and estimate.tokens > 3_000_000, estimate
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
