"""Who has no key still sees that a store is sealed."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.ports import Store
from proxy.store.keyring import Keyring
from proxy.store.mark import has_sign, is_sealed, put_sign
from proxy.store.memory import MemoryStore
from proxy.store.sealed import SealedStore
from proxy.store.slots import SECRET

KEYS = Keyring({"k1": b"1" * 32})
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=st.binary())
def test_what_is_sealed_is_seen_to_be(value: bytes) -> None:
    assert is_sealed(KEYS.seal(SECRET, value))


@given(value=ANYTHING)
def test_nothing_that_was_never_sealed_looks_like_it(value: object) -> None:
    assert not is_sealed(msgspec.msgpack.encode(value))
    assert not is_sealed(json.dumps(repr(value)).encode())
    assert not is_sealed(repr(value).encode(errors="replace"))
    assert not is_sealed(b"")


async def secret_in(store: Store) -> Store:
    await store.put_new(*SECRET, b"s" * 32, ttl=None)
    return store


async def test_a_store_whose_own_secret_is_sealed_is_told_from_one_in_clear() -> None:
    inner = MemoryStore()
    assert not await has_sign(inner)
    await secret_in(SealedStore(inner, KEYS))
    assert await has_sign(inner)
    assert not await has_sign(await secret_in(MemoryStore()))


@pytest.mark.parametrize("times", [1, 2])
async def test_so_is_one_that_keeps_no_secret_by_the_sign_that_who_has_the_key_has_put_there(
    times: int,
) -> None:
    inner = MemoryStore()
    for _ in range(times):
        await put_sign(inner)
    assert await has_sign(inner)
