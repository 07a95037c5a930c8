from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.recent import Recent


def test_what_was_asked_for_last_stays() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_what_is_put_again_is_new_again() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.put("a", 3)
    recent.put("c", 4)
    assert (recent.get("a"), recent.get("b")) == (3, None)


def test_a_value_that_counts_as_false_is_a_value() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 0)
    recent.put("b", 1)
    assert recent.get("a") == 0
    recent.put("c", 2)
    assert recent.get("a") == 0


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_it_never_holds_more_than_it_may_and_never_a_wrong_value(
    most: int, acts: list[tuple[int, bool]]
) -> None:
    recent: Recent[int, int] = Recent(most)
    last: dict[int, int] = {}
    for at, (key, puts) in enumerate(acts):
        if puts:
            recent.put(key, at)
            last[key] = at
            assert recent.get(key) == at
        assert recent.get(key) in (None, last.get(key))
        assert len(recent) <= most
