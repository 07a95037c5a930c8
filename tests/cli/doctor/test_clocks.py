from __future__ import annotations

import pytest

from proxy.cli.doctor.clocks import compared
from proxy.cli.doctor.finding import Verdict


@pytest.mark.parametrize("ahead", [0.0, 4.9, -4.9])
def test_a_few_seconds_are_nothing(ahead: float) -> None:
    assert compared("clock", "the store", ahead).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ahead", "found"),
    [
        (60.0, "this machine is 60 s behind the store"),
        (-60.0, "this machine is 60 s ahead of the store"),
        (4000.0, "this machine is 4,000 s behind the store"),
    ],
)
def test_it_is_said_who_is_behind_whom(ahead: float, found: str) -> None:
    finding = compared("clock", "the store", ahead)
    assert (finding.verdict, finding.found) == (Verdict.WARN, found)


def test_what_a_clock_far_off_does_is_said() -> None:
    near, far = compared("clock", "the store", 299).hint, compared("clock", "the store", -301).hint
    assert near is not None
    assert far is not None
    assert far.startswith(near)
    assert "certificates" in far.removeprefix(near)
