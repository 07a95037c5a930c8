"""What may be asked of Prometheus: the metrics that exist, their labels, their documented values."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from proxy.metrics import Metrics
from tests.deploy.promql import Matcher, Query, Selector, read
from tests.deploy.tools import DEPLOY, ROOT, read_yaml

# Prometheus' own.
_ITS_OWN = {"up": frozenset[str](), "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
# Their values are the user's models, and bounds.
_ANYTHING = frozenset({"model", "le"})
_OF_A_SCRAPE = frozenset({"job", "instance"})


def _exposed() -> dict[str, frozenset[str]]:
    """The labels of every series that /metrics has, by its name."""
    exposed: dict[str, frozenset[str]] = {}
    for metric in vars(Metrics()).values():
        if not isinstance(metric, Counter | Gauge | Histogram):
            continue
        [family] = metric.describe()
        labels = frozenset(metric._labelnames)
        if isinstance(metric, Histogram):
            exposed |= {f"{family.name}_{each}": labels for each in ("sum", "count")}
            exposed[f"{family.name}_bucket"] = labels | {"le"}
        else:
            exposed[f"{family.name}_total" if isinstance(metric, Counter) else family.name] = labels
    return exposed


EXPOSED = _exposed()

RULES = {
    file.name: [rule for group in read_yaml(file)["groups"] for rule in group["rules"]]
    for file in sorted((DEPLOY / "prometheus/rules").glob("*.yml"))
}
# A recorded name begins with what it is grouped by: job_route:…
RECORDED: dict[str, frozenset[str]] = {
    rule["record"]: frozenset(rule["record"].partition(":")[0].split("_"))
    for rules in RULES.values()
    for rule in rules
    if "record" in rule
}
LABELS = EXPOSED | RECORDED | _ITS_OWN


def complaints(query: str) -> list[str]:
    """Metrics, labels and values in a query that there are none of."""
    asked = read(query)
    unknown = [selector.metric for selector in asked.selectors if selector.metric not in LABELS]
    if unknown:
        return [f"there is no metric {metric}" for metric in unknown]
    return [*_labels(asked), *_values(asked.selectors)]


def labels_of(query: str) -> frozenset[str]:
    """The labels that the result may have: those it is grouped by, else those of its metrics."""
    asked = read(query)
    return asked.grouped_by or frozenset().union(*(_all_labels(each.metric) for each in asked.selectors))


def _labels(asked: Query) -> list[str]:
    of_any = frozenset().union(*(_all_labels(selector.metric) for selector in asked.selectors))
    grouped = [f"nothing in it has the label {label}" for label in asked.grouped_by - of_any]
    matched = [
        f"{selector.metric} has no label {matcher.label}"
        for selector in asked.selectors
        for matcher in selector.matchers
        if matcher.label not in _all_labels(selector.metric)
    ]
    return grouped + matched


def _all_labels(metric: str) -> frozenset[str]:
    return LABELS[metric] | _OF_A_SCRAPE


def _values(selectors: Iterable[Selector]) -> list[str]:
    return [
        f"{selector.metric} is never told with {matcher.label}={value}"
        for selector in selectors
        if selector.metric in EXPOSED
        for matcher in selector.matchers
        if matcher.label in EXPOSED[selector.metric] - _ANYTHING
        for value in _alternatives(matcher)
        if not any(re.fullmatch(value, word) for word in _documented(selector.metric, matcher.label))
    ]


def _alternatives(matcher: Matcher) -> list[str]:
    return matcher.value.split("|") if matcher.sign in ("=~", "!~") else [re.escape(matcher.value)]


def _documented(metric: str, label: str) -> list[str]:
    """The words that the documentation of a metric has, or of the errors for the codes of errors."""
    if label == "code":
        page = (ROOT / "docs/api.md").read_text()
        return re.findall(r"^\| \d{3} \| `(\w+)` \|", page, re.MULTILINE)
    family = re.sub(r"_(bucket|sum|count)$", "", metric)
    [row] = re.findall(rf"^\| `{family}` \|.*$", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", row)
