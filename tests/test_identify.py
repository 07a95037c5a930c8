from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.identify import TENANT_SIZE, Tenants, credentials_in

SECRET = b"the server's own"
TARGET = b"/v1/chat/completions"
TENANTS = Tenants(SECRET)

HEADERS = [b"Authorization", b"api-key", b"X-Api-Key", b"x-goog-api-key"]
values = st.binary(min_size=1, max_size=12)
credentials = st.lists(st.tuples(st.sampled_from(HEADERS), values), max_size=4)
others = st.lists(
    st.tuples(st.sampled_from([b"Accept", b"User-Agent", b"OpenAI-Project"]), values), max_size=3
)


def named(*headers: tuple[bytes, bytes], target: bytes = TARGET) -> bytes:
    return TENANTS.of(headers, target)


def lowered(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return sorted((name.lower(), value) for name, value in pairs)


@given(credentials, others, st.data())
def test_the_same_credential_is_the_same_caller_in_whatever_order_and_case(
    said: list[tuple[bytes, bytes]], beside: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    again = data.draw(st.permutations([(name.upper(), value) for name, value in said] + beside))
    assert named(*said) == named(*again)


@given(credentials, credentials)
def test_any_difference_between_credentials_makes_another_caller(
    one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]
) -> None:
    assert (named(*one) == named(*other)) == (lowered(one) == lowered(other))


@pytest.mark.parametrize("header", HEADERS)
def test_a_credential_under_another_name_is_another_caller(header: bytes) -> None:
    names = {named((each, b"sk-1")) for each in HEADERS} | {named(target=TARGET + b"?key=sk-1")}
    assert len(names) == len(HEADERS) + 1
    assert named((header, b"sk-1")) != named((header, b"sk-2")) != named()


def test_values_do_not_run_together() -> None:
    assert named((b"api-key", b"ab"), (b"x-api-key", b"c")) != named(
        (b"api-key", b"a"), (b"x-api-key", b"bc")
    )
    assert named((b"api-key", b"a"), (b"api-key", b"b")) != named((b"api-key", b"ab"))


@pytest.mark.parametrize(
    ("target", "same_as"),
    [
        (b"/v1/x?key=abc", b"/v1/y?key=abc"),
        (b"/v1/x?key=abc", b"/v1/x?alt=sse&key=abc"),
        (b"/v1/x?key=abc", b"/v1/x?key=a%62c"),
        (b"/v1/x?key=abc", b"/v1/x?%6bey=abc"),
        (b"/v1/x", b"/v1/x?monkey=abc"),
        (b"/v1/x", b"/v1/key=abc"),
        (b"/v1/x", b"/v1/x?"),
    ],
)
def test_the_key_in_the_address_counts_and_nothing_else_there(target: bytes, same_as: bytes) -> None:
    assert named(target=target) == named(target=same_as)


@given(st.binary(), st.binary())
def test_no_address_is_too_odd_to_be_read(one: bytes, other: bytes) -> None:
    def escaped(key: bytes) -> bytes:
        return b"/?key=" + b"".join(b"%%%02X" % byte for byte in key)

    named(target=b"/?key=" + one)
    assert (named(target=escaped(one)) == named(target=escaped(other))) == (one == other)


def test_keys_that_are_no_text_are_told_apart() -> None:
    assert named(target=b"/?key=%ff") != named(target=b"/?key=%fe") != named(target=b"/?key=\xff")


def test_another_server_knows_the_caller_by_another_name() -> None:
    header = (b"Authorization", b"Bearer sk-1")
    assert Tenants(b"another").of([header], TARGET) != named(header)


def test_under_another_secret_a_caller_has_the_name_that_it_always_had_there() -> None:
    header = (b"Authorization", b"Bearer sk-1")
    tenants = Tenants(b"another")
    tenants.use(SECRET)
    assert tenants.of([header], TARGET) == named(header)


def everything_reachable_from(root: object) -> Iterator[object]:
    seen, waiting = {id(root)}, [root]
    while waiting:
        yield (each := waiting.pop())
        fresh = [inner for inner in gc.get_referents(each) if id(inner) not in seen]
        seen.update(map(id, fresh))
        waiting.extend(inner for inner in fresh if isinstance(inner, bytes | tuple | list | dict))


def test_a_name_shows_nothing_of_the_credential_and_nothing_of_it_is_kept() -> None:
    tenants = Tenants(SECRET)
    name = tenants.of([(b"Authorization", b"Bearer sk-secret")], TARGET + b"?key=sk-secret")
    assert len(name) == TENANT_SIZE
    assert b"secret" not in name
    kept = [each for each in everything_reachable_from(vars(tenants)) if isinstance(each, bytes)]
    assert kept == [SECRET]


def test_what_is_needed_to_ask_in_the_callers_name_is_taken_as_it_was_sent() -> None:
    headers = [
        (b"Host", b"example.test"),
        (b"AUTHORIZATION", b"Bearer sk-1"),
        (b"OpenAI-Organization", b"org-1"),
        (b"openai-project", b"p-1"),
        (b"X-API-Key", b"k"),
        (b"Cookie", b"c=1"),
        (b"x-goog-api-key", b"g"),
        (b"api-key", b"z"),
    ]
    assert credentials_in(headers) == [headers[1], headers[2], headers[3], headers[4], headers[6], headers[7]]
    assert credentials_in([]) == []
