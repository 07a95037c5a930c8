from __future__ import annotations

import pytest

from tests.deploy.promql import Matcher, Query, Selector, read


@pytest.mark.parametrize(
    ("query", "metrics", "labels"),
    [
        ("up", ["up"], set()),
        ("a:b:c > 0.1", ["a:b:c"], set()),
        ("sum by (job, le) (rate(x_bucket[5m]))", ["x_bucket"], {"job", "le"}),
        ("sum(x) without(job) / on (a) group_left (b) y", ["x", "y"], {"job", "a", "b"}),
        ("x unless x offset 1h or vector(0)", ["x", "x"], set()),
        ("histogram_quantile(0.9, x) == bool 1e3 and y # of z", ["x", "y"], set()),
        ('x{a="}(b"} * ignoring (c) group_left () y[1h:5m]', ["x", "y"], {"c"}),
    ],
)
def test_metrics_and_grouping_labels_are_found(query: str, metrics: list[str], labels: set[str]) -> None:
    found = read(query)
    assert [selector.metric for selector in found.selectors] == metrics
    assert found.grouped_by == labels


def test_matchers_are_found_with_their_values() -> None:
    matchers = (Matcher("a", "=", "b"), Matcher("c", "=~", "d|e"), Matcher("f", "!=", ""))
    assert read("""x{a="b", c=~'d|e', f!="",}""") == Query((Selector("x", matchers),), frozenset())


def test_a_selector_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="names no metric"):
        read('sum({job="tailfold"})')
