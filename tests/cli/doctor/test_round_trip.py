from __future__ import annotations

import pytest

from proxy.cli.doctor.finding import Verdict
from proxy.cli.doctor.round_trip import Medians, judged, unavailable
from proxy.ports import StoreUnavailable
from proxy.store.outage import Outage


@pytest.mark.parametrize(
    ("slowest", "verdict"), [(0.09, Verdict.PASS), (0.11, Verdict.WARN), (0.2, Verdict.FAIL)]
)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_slowest_counts_against_what_a_request_waits(
    slowest: float, verdict: Verdict, which: int
) -> None:
    times = [0.001, 0.001, 0.001]
    times[which] = slowest
    finding = judged("redis://host", Medians(*times), 0.2)
    assert finding.verdict is verdict
    assert "put" in finding.found
    assert f"{slowest * 1000:.2f} ms" in finding.found


def test_every_reason_has_something_to_do() -> None:
    assert "read-only" in unavailable(Outage("readonly", "read-only")).found
    full, other = unavailable(Outage("full", "x")), unavailable(StoreUnavailable("x"))
    assert full.hint
    assert other.hint
    assert full.hint != other.hint
