from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.store import envelope

KEYS, VALUES = st.binary(max_size=40), st.binary(max_size=200)
TIMES = st.integers(0, envelope.NEVER)


@given(key=KEYS, value=VALUES, expires=st.none() | st.integers(2, envelope.NEVER))
def test_what_was_sealed_opens_while_it_holds(key: bytes, value: bytes, expires: int | None) -> None:
    sealed = envelope.sealed(key, value, expires)
    assert envelope.opened(key, sealed, 0) == value
    assert envelope.expires_at(sealed) == expires
    if expires is not None:
        assert envelope.opened(key, sealed, expires - 1) == value
        assert envelope.opened(key, sealed, expires) is None


@given(key=KEYS, value=VALUES, expires=TIMES, now=TIMES)
def test_what_is_over_is_not_taken_for_damaged(key: bytes, value: bytes, expires: int, now: int) -> None:
    sealed = envelope.sealed(key, value, expires)
    assert envelope.is_over(sealed, now) == (envelope.opened(key, sealed, now) is None)


@given(key=KEYS, value=VALUES, now=TIMES)
def test_what_is_kept_for_good_is_never_over(key: bytes, value: bytes, now: int) -> None:
    sealed = envelope.sealed(key, value, None)
    assert envelope.opened(key, sealed, now) == value
    assert not envelope.is_over(sealed, now)


@given(key=KEYS, value=VALUES, expires=st.none() | st.integers(2, envelope.NEVER), data=st.data())
def test_a_bit_that_has_changed_never_gives_another_value(
    key: bytes, value: bytes, expires: int | None, data: st.DataObject
) -> None:
    damaged = bytearray(envelope.sealed(key, value, expires))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    assert envelope.opened(key, bytes(damaged), 0) in (None, value)  # the time is not under the checksum


@given(key=KEYS, other=KEYS, value=VALUES)
def test_a_value_under_another_key_does_not_open(key: bytes, other: bytes, value: bytes) -> None:
    opened = envelope.opened(other, envelope.sealed(key, value, None), 0)
    assert opened == (value if key == other else None)


@given(junk=st.binary(max_size=60), now=TIMES)
@example(junk=b"", now=0)
@example(junk=b"\x01" * 12, now=0)
@example(junk=b"\x02" * 13, now=0)
def test_junk_is_nothing(junk: bytes, now: int) -> None:
    assert envelope.opened(b"key", junk, now) is None


@given(key=KEYS, value=VALUES, expires=TIMES, later=TIMES)
def test_its_time_can_be_renewed_without_the_rest(key: bytes, value: bytes, expires: int, later: int) -> None:
    sealed = envelope.sealed(key, value, expires)
    renewed = envelope.header(later) + sealed[len(envelope.header(0)) :]
    assert renewed == envelope.sealed(key, value, later)
