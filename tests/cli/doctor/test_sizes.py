from __future__ import annotations

import pytest

from proxy.cli.doctor.sizes import written


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (104_857_600, "104.9 MB"),
        (2e12, "2.0 TB"),
        (3e15, "3,000.0 TB"),
    ],
)
def test_a_size_is_written_for_people(size: float, text: str) -> None:
    assert written(size) == text
