from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.ports import Space
from proxy.store.keyring import Keyring, Unreadable
from proxy.store.slots import Slot

OLD, NEW = ("old", b"o" * 32), ("new-key", b"n" * 32)
SLOT = Slot(b"alice", Space.FOLDS, b"key")

slots = st.builds(Slot, st.binary(max_size=20), st.sampled_from(Space), st.binary(max_size=20))
values = st.binary(max_size=200)


def ring(*keys: tuple[str, bytes]) -> Keyring:
    return Keyring(dict(keys))


@given(slot=slots, value=values)
def test_what_was_sealed_is_opened_in_its_place(slot: Slot, value: bytes) -> None:
    keys = ring(OLD)
    assert keys.open(slot, keys.seal(slot, value)) == value


@given(slot=slots, other=slots, value=values)
def test_in_any_other_place_it_is_not(slot: Slot, other: Slot, value: bytes) -> None:
    keys = ring(OLD)
    assert keys.open(other, keys.seal(slot, value)) == (value if other == slot else Unreadable.DAMAGED)


@pytest.mark.parametrize(
    "other", [(b"alicek", Space.FOLDS, b"ey"), (b"", Space.FOLDS, b"key"), (b"alice", Space.LANES, b"key")]
)
def test_places_do_not_run_together(other: tuple[bytes, Space, bytes]) -> None:
    keys = ring(OLD)
    assert keys.open(Slot(*other), keys.seal(SLOT, b"value")) is Unreadable.DAMAGED


@given(value=values.filter(lambda value: len(value) > 3))
def test_what_is_sealed_shows_nothing_of_the_value_and_is_never_the_same_twice(value: bytes) -> None:
    keys = ring(OLD)
    once, again = keys.seal(SLOT, value), keys.seal(SLOT, value)
    assert value not in once
    assert once != again
    assert len(once) == len(value) + len("old") + 31


@pytest.mark.parametrize("value", [b"", b"a fold"])
def test_no_byte_can_be_changed_added_or_taken_away(value: bytes) -> None:
    keys = ring(OLD, NEW)
    sealed = keys.seal(SLOT, value)
    for place in range(len(sealed)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(sealed)
            changed[place] ^= mask
            assert isinstance(keys.open(SLOT, bytes(changed)), Unreadable)
        assert isinstance(keys.open(SLOT, sealed[:place]), Unreadable)
        assert isinstance(keys.open(SLOT, sealed[:place] + sealed[place + 1 :]), Unreadable)
        assert isinstance(keys.open(SLOT, sealed[:place] + b"\0" + sealed[place:]), Unreadable)
    assert isinstance(keys.open(SLOT, sealed + b"\0"), Unreadable)


@given(junk=st.binary(max_size=100))
def test_junk_is_never_opened_and_never_an_error(junk: bytes) -> None:
    keys = ring(OLD)
    for value in (junk, b"\xc1" + junk, b"\xc1\x01" + junk, b"\xc1\x01\x03old" + junk):
        assert isinstance(keys.open(SLOT, value), Unreadable)


def test_the_first_key_seals_and_all_of_them_open() -> None:
    before, after = ring(OLD, NEW), ring(NEW, OLD)
    assert after.open(SLOT, before.seal(SLOT, b"value")) == b"value"
    assert before.open(SLOT, after.seal(SLOT, b"value")) == b"value"
    assert ring(NEW).open(SLOT, after.seal(SLOT, b"value")) == b"value"
    assert ring(NEW).open(SLOT, before.seal(SLOT, b"value")) is Unreadable.FOREIGN


def test_another_key_of_the_same_name_is_the_wrong_one() -> None:
    sealed = ring(OLD).seal(SLOT, b"value")
    assert ring(("old", b"x" * 32)).open(SLOT, sealed) is Unreadable.DAMAGED


def test_a_newer_format_is_somebody_elses_and_no_junk() -> None:
    sealed = bytearray(ring(OLD).seal(SLOT, b"value"))
    sealed[1] += 1
    assert ring(OLD).open(SLOT, bytes(sealed)) is Unreadable.FOREIGN


@pytest.mark.parametrize("plain", [b"", b"1", b'{"role":"user"}', b"\x93\x01\x02\x03", b"s" * 32])
def test_what_was_never_sealed_is_told_apart(plain: bytes) -> None:
    assert ring(OLD).open(SLOT, plain) is Unreadable.PLAIN
