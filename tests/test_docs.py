"""What can be met from outside is written down."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from proxy import announcing, errors
from proxy.counting.anchors import Basis
from proxy.exchange import Route, Stage
from proxy.metrics import Metrics
from proxy.store.outage import Reason
from proxy.windows.facts import Origin

ROOT = Path(__file__).parent.parent
API = (ROOT / "docs/api.md").read_text()
METRICS = (ROOT / "docs/metrics.md").read_text()
RESPONSE_HEADERS = [
    value.decode() for value in vars(announcing).values() if isinstance(value, bytes) and value[:2] == b"X-"
]


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
    assert f"`{metric}`" in METRICS or f"`{metric}_total`" in METRICS


@pytest.mark.parametrize("label", [*Route, *Stage])
def test_every_value_of_a_label_is_documented(label: str) -> None:
    assert f"`{label}`" in METRICS


@pytest.mark.parametrize("header", ["X-Conversation-Id", "X-Tailfold-Mode", *RESPONSE_HEADERS])
def test_every_header_is_documented(header: str) -> None:
    assert f"| `{header}` |" in API


@pytest.mark.parametrize("label", [*Basis, *Origin, *get_args(Reason)])
def test_every_value_of_a_counting_label_is_documented(label: str) -> None:
    assert f"`{label}`" in METRICS


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for link in [part.split(")")[0] for part in text.split("](")[1:]]:
        if "://" not in link:
            assert (page.parent / link.split("#")[0]).exists(), link
