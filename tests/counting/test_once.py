from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from proxy.counting.once import Once


def test_a_kind_is_new_only_once() -> None:
    once = Once()
    assert [once.first(kind) for kind in ("a", "b", "a", "b", "c")] == [True, True, False, False, True]


def test_past_its_limit_nothing_is_new() -> None:
    once = Once(limit=2)
    assert [once.first(kind) for kind in ("a", "b", "c", "c", "a")] == [True, True, False, False, False]


def test_of_several_threads_one_is_the_first() -> None:
    once, together = Once(limit=1000), Barrier(8)

    def ask(_: int) -> list[bool]:
        together.wait(timeout=60)
        return [once.first(str(kind)) for kind in range(1000)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert all(sum(said) == 1 for said in zip(*answers, strict=True))
