"""The dashboard asks for nothing that does not exist, and Grafana finds it where compose puts it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.known_metrics import RULES, complaints, labels_of
from tests.deploy.tools import DEPLOY, accepts, read_yaml

FOLDER = DEPLOY / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboards/tailfold.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
NAMES = [f"{panel['title']} {target['refId']}" for panel, target in TARGETS]
# What Grafana puts in.
VARIABLES = {"$__rate_interval": "5m", "$job": "tailfold", "$instance": ".*"}


def filled_in(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def queries() -> Iterator[str]:
    for _, target in TARGETS:
        yield filled_in(target["expr"])
    for annotation in DASHBOARD["annotations"]["list"]:
        yield filled_in(annotation["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found
            yield f"count by ({found[2]}) ({filled_in(found[1])})"


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in accepts("promtool", "check", "rules", file)


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_asks_only_for_what_there_is(query: str) -> None:
    assert complaints(query) == []


@pytest.mark.parametrize(("panel", "target"), TARGETS, ids=NAMES)
def test_a_legend_names_labels_that_the_query_keeps(panel: dict[str, Any], target: dict[str, Any]) -> None:
    wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert wanted <= labels_of(filled_in(target["expr"]))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")


def test_ids_are_unique_and_no_panel_lies_on_another() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [
        (x, y)
        for spot in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(spot["x"], spot["x"] + spot["w"])
        for y in range(spot["y"], spot["y"] + spot["h"])
    ]
    assert len(set(numbers)) == len(numbers)
    assert len(set(places)) == len(places)
    assert all(x < 24 for x, _ in places)


@pytest.mark.parametrize(
    "row",
    [
        "Overview",
        "Savings",
        "Windows",
        "Folds",
        "Errors",
        "Provider's cache",
        "Counting",
        "Overhead",
        "Store",
    ],
)
def test_there_is_a_row_for_each_question(row: str) -> None:
    assert row in [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]


def test_panels_that_alerts_speak_of_are_there() -> None:
    told = " ".join(rule["annotations"]["description"] for rule in RULES["alerts.yml"])
    spoken_of = re.findall(r"The panel ([A-Z][a-z ]+?) shows", told)
    assert spoken_of
    assert set(spoken_of) <= {panel["title"] for panel in PANELS}


def test_whoever_imports_the_dashboard_chooses_the_datasource() -> None:
    sources = {panel["datasource"]["uid"] for panel in PANELS}
    sources |= {target["datasource"]["uid"] for _, target in TARGETS}
    assert sources == {"${datasource}"}


def test_grafana_is_told_of_the_datasource_and_of_the_folder_that_compose_mounts() -> None:
    [source] = read_yaml(FOLDER / "provisioning/datasources/prometheus.yaml")["datasources"]
    [provider] = read_yaml(FOLDER / "provisioning/dashboards/tailfold.yaml")["providers"]
    compose = read_yaml(DEPLOY / "compose/compose.yaml")["services"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert "prometheus" in compose
    assert f"../grafana/dashboards:{provider['options']['path']}:ro" in compose["grafana"]["volumes"]
