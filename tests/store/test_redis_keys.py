from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from proxy.ports import HOME_SIZE, HOMED, Space
from proxy.store.redis_keys import ALL, bound, by_key, named, place_of

SPACES = st.sampled_from(Space)
TENANTS = st.binary(max_size=32)
KEYS = st.binary(max_size=48)
SLOTS = st.tuples(TENANTS, SPACES, KEYS)


@given(one=SLOTS, other=SLOTS)
def test_two_values_never_have_one_place(
    one: tuple[bytes, Space, bytes], other: tuple[bytes, Space, bytes]
) -> None:
    assert (place_of(*one) == place_of(*other)) == (one == other)


@given(tenant=TENANTS, space=SPACES, key=KEYS)
def test_what_lies_under_a_name_can_be_read_off_it(tenant: bytes, space: Space, key: bytes) -> None:
    place = place_of(tenant, space, key)
    where = named(place.key)
    assert where is not None
    assert (where.tenant, where.space, where.key + (place.field or b"")) == (tenant, space, key)
    assert place.key.startswith(ALL.removesuffix(b"*"))


@given(tenant=TENANTS, home=st.binary(min_size=HOME_SIZE, max_size=HOME_SIZE), rests=st.lists(KEYS))
def test_all_that_belongs_to_a_conversation_lies_on_one_server(
    tenant: bytes, home: bytes, rests: list[bytes]
) -> None:
    slots = {key_slot(place_of(tenant, space, home + rest).key) for space in HOMED for rest in rests}
    assert len(slots) <= 1


@given(tenant=TENANTS, space=st.sampled_from(sorted(HOMED)), keys=st.lists(KEYS, unique=True))
def test_keys_are_gathered_by_where_they_lie(tenant: bytes, space: Space, keys: list[bytes]) -> None:
    gathered = by_key(tenant, space, keys)
    assert sorted(key for theirs in gathered.values() for key in theirs) == sorted(keys)
    for place, theirs in gathered.items():
        assert {place_of(tenant, space, key).key for key in theirs} == {place}


@given(name=st.binary(max_size=60) | st.binary(max_size=60).map(ALL.removesuffix(b"*").__add__))
def test_a_name_of_somebody_elses_is_no_error(name: bytes) -> None:
    where = named(name)
    assert where is None or isinstance(where.space, Space)


@pytest.mark.parametrize("name", [b"tailfold:1:nothing:YQ:YQ", b"tailfold:1:folds", b"tailfold:1:", b""])
def test_what_is_not_named_as_we_do_is_not_ours(name: bytes) -> None:
    assert named(name) is None


@given(tenants=st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=2), key=KEYS)
def test_a_value_is_bound_to_its_caller_and_its_kind(tenants: list[bytes], key: bytes) -> None:
    places = {(tenant, space) for tenant in tenants for space in Space}
    assert len({bound(tenant, space, key) for tenant, space in places}) == len(places)
