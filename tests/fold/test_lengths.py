"""How long a summary may become."""

from __future__ import annotations

import pytest

from proxy.fold.lengths import Lengths


@pytest.mark.parametrize(
    ("replaced", "wished", "limit"),
    [(0, None, 200), (1_999, None, 200), (2_010, None, 201), (50_000, None, 5_000), (10, 50, 50)],
)
def test_a_tenth_of_what_it_replaces_and_no_more_than_the_user_wishes(
    replaced: int, wished: int | None, limit: int
) -> None:
    assert (Lengths() if wished is None else Lengths(wished=wished)).limit(replaced) == limit


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [
        (Lengths(), 8_000),
        (Lengths(window=128_000, longest_answer=16_384, room=100_000), 8_000),
        (Lengths(window=1_000_000, room=1_000_000), 8_000),
        (Lengths(window=128_000, longest_answer=4_096, room=100_000), 4_096),
        (Lengths(window=32_000, room=100_000), 2_000),
        (Lengths(window=128_000, room=16_000), 2_000),
        (Lengths(window=1_000, room=1_000), 200),
        (Lengths(window=128_000, longest_answer=100, room=100_000), 100),
        (Lengths(window=128_000, room=100_000, wished=1_000), 1_000),
    ],
)
def test_of_a_huge_history_no_more_than_its_writer_can_write_and_leaves_of_the_room(
    lengths: Lengths, limit: int
) -> None:
    assert lengths.limit(1_000_000) == limit
