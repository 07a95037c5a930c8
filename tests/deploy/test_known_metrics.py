from __future__ import annotations

import pytest

from tests.deploy.known_metrics import EXPOSED, complaints
from tests.running import Running


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("tailfold_requests", "there is no metric tailfold_requests"),
        ("rate(tailfold_request_seconds[5m])", "there is no metric tailfold_request_seconds"),
        ("sum by (modle) (tailfold_requests_total)", "nothing in it has the label modle"),
        ('tailfold_overflows_total{model="a"}', "tailfold_overflows_total has no label model"),
        (
            'tailfold_folds_total{result="well"}',
            "tailfold_folds_total is never told with result=well",
        ),
        (
            'tailfold_errors_total{code=~"upstream_.+|overload"}',
            "tailfold_errors_total is never told with code=overload",
        ),
    ],
)
def test_what_does_not_exist_is_complained_of(query: str, complaint: str) -> None:
    assert complaints(query) == [complaint]


def test_what_exists_is_not_complained_of() -> None:
    query = 'sum by (job, le) (rate(tailfold_summary_seconds_bucket{result="ok",job=~"a.*"}[5m]))'
    assert complaints(query) == []


def test_the_names_are_those_that_a_scrape_has(tailfold: Running) -> None:
    lines = tailfold.app.metrics.exposition().decode().splitlines()
    scraped = {line.partition("{")[0].partition(" ")[0] for line in lines if not line.startswith("#")}
    assert {name for name in scraped if not name.endswith("_created")} <= EXPOSED.keys()
