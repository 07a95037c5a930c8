"""What can be met from outside is written down."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pytest

from proxy import announcing, conversation, errors, sending
from proxy.announcing import ROUGH_COUNT, Action
from proxy.counting.anchors import Basis
from proxy.exchange import Route, Stage
from proxy.fold.record import Kind
from proxy.fold.wording import STYLES, Rejection
from proxy.metrics import SUMMARY_TOKEN_KINDS, TOKEN_KINDS, Metrics
from proxy.store.outage import Reason
from proxy.tidings import Reason as Trigger
from proxy.web import wishes
from proxy.windows.facts import Origin
from proxy.workshop import Workshop

ROOT = Path(__file__).parent.parent
API = (ROOT / "docs/api.md").read_text()
METRICS = (ROOT / "docs/metrics.md").read_text()
FOLDING = (ROOT / "docs/folding.md").read_text()
RESPONSE_HEADERS = [
    value.decode() for value in vars(announcing).values() if isinstance(value, bytes) and value[:2] == b"X-"
]
REQUEST_HEADERS = [
    value for value in vars(wishes).values() if isinstance(value, str) and value.startswith("X-")
]
WARNINGS = [value for name, value in vars(sending).items() if name.isupper() and isinstance(value, str)]
# They are only said there: words among its constants, of which the first is what it says of itself.
HESITATIONS = [said for said in Workshop.hesitates.__code__.co_consts[1:] if isinstance(said, str)]


def families(*modules: object) -> list[type[errors.TailfoldError]]:
    everything = [thing for module in modules for thing in vars(module).values()]
    return [
        thing for thing in everything if isinstance(thing, type) and issubclass(thing, errors.TailfoldError)
    ]


@pytest.mark.parametrize("error", families(errors), ids=lambda error: error.__name__)
def test_every_error_is_documented_with_its_status(error: type[errors.TailfoldError]) -> None:
    assert f"| {error.status} | `{error.code}` |" in API


@pytest.mark.parametrize("metric", [family.name for family in Metrics().registry.collect()])
def test_every_metric_is_documented(metric: str) -> None:
    assert f"| `{metric}` |" in METRICS or f"| `{metric}_total` |" in METRICS


@pytest.mark.parametrize(
    ("metric", "label", "values"),
    [
        ("requests_total", "route", Route),
        ("overhead_seconds_total", "stage", Stage),
        ("upstream_tokens_total", "kind", TOKEN_KINDS),
        ("summary_tokens_total", "kind", SUMMARY_TOKEN_KINDS),
        ("estimate_error_ratio", "basis", Basis),
        ("context_utilization_ratio", "origin", Origin),
        ("actions_total", "action", Action),
        ("folds_total", "strategy", Kind),
        ("folds_total", "trigger", get_args(Trigger) or Trigger),
        ("store_outages_total", "reason", get_args(Reason)),
    ],
)
def test_a_metrics_label_is_documented_with_its_values_and_no_others(
    metric: str, label: str, values: Iterable[str]
) -> None:
    [row] = [line for line in METRICS.splitlines() if line.startswith(f"| `tailfold_{metric}` |")]
    [said] = re.findall(rf"`{label}` \(([^)]*)\)", row)
    assert set(re.findall(r"`([^`]+)`", said)) == {str(value) for value in values}


def test_what_is_part_of_another_kind_is_not_added_to_it_in_a_query() -> None:
    queries = [line for line in METRICS.splitlines() if "rate(tailfold_summary_tokens_total" in line]
    assert queries
    assert all('tailfold_summary_tokens_total{kind=~"input|output"}' in query for query in queries)


@pytest.mark.parametrize("label", [*Route, *Stage])
def test_every_value_of_a_label_is_documented(label: str) -> None:
    assert f"`{label}`" in METRICS


@pytest.mark.parametrize("header", ["X-Conversation-Id", *REQUEST_HEADERS, *RESPONSE_HEADERS])
def test_every_header_is_documented(header: str) -> None:
    assert f"| `{header}` |" in API


@pytest.mark.parametrize("label", [*Basis, *Origin, *get_args(Reason)])
def test_every_value_of_a_counting_label_is_documented(label: str) -> None:
    assert f"`{label}`" in METRICS


@pytest.mark.parametrize("label", [*Action, *Kind, *Trigger, *Rejection])
def test_every_value_of_a_folding_label_is_documented(label: str) -> None:
    assert f"`{label}`" in METRICS


@pytest.mark.parametrize("action", Action)
def test_every_action_is_explained(action: str) -> None:
    assert f"| `{action}` |" in API


def test_there_are_warnings_to_look_for() -> None:
    assert len(WARNINGS) > 1
    assert len(HESITATIONS) > 1


@pytest.mark.parametrize("warning", [ROUGH_COUNT, *WARNINGS, *HESITATIONS])
def test_every_warning_is_explained_and_counted(warning: str) -> None:
    assert f"| `{warning}` |" in API
    assert f"`{warning}`" in METRICS


@pytest.mark.parametrize("warning", [*WARNINGS, *HESITATIONS])
def test_every_warning_of_folding_is_explained_where_folding_is(warning: str) -> None:
    assert f"| `{warning}` |" in FOLDING


@pytest.mark.parametrize("line", ["fold_made", "fold_used", "fold_failed", "fold_observed", "warning"])
def test_every_log_line_about_folds_is_documented(line: str) -> None:
    assert f"| `{line}` |" in METRICS


@pytest.mark.parametrize("header", [name.decode() for name in conversation._CLIENTS])
def test_every_header_that_names_a_conversation_is_documented(header: str) -> None:
    assert f"`{header}`" in FOLDING.lower()


@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_a_summary_is_documented(style: str) -> None:
    assert f"`{style}`" in FOLDING


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for link in [part.split(")")[0] for part in text.split("](")[1:]]:
        if "://" not in link:
            target, _, place = link.partition("#")
            led_to = page.parent / target if target else page
            assert led_to.exists(), link
            assert not place or place in headings(led_to), link


def headings(page: Path) -> list[str]:
    """As pages on the web name them."""
    titles = [line.lstrip("# ") for line in page.read_text().splitlines() if line.startswith("#")]
    kept = ["".join(each for each in title.lower() if each.isalnum() or each in " -_") for title in titles]
    return [title.replace(" ", "-") for title in kept]
