"""The configuration and the rules, as Prometheus' own tool reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.known_metrics import RULES, complaints
from tests.deploy.tools import DEPLOY, ROOT, accepts, read_yaml

FOLDER = DEPLOY / "prometheus"
RULE_FILES = sorted((FOLDER / "rules").glob("*.yml"))
UNIT_TESTS = sorted((FOLDER / "tests").glob("*.yml"))
ALERTS = [rule for rules in RULES.values() for rule in rules if "alert" in rule]
RECORDINGS = [rule for rules in RULES.values() for rule in rules if "record" in rule]


def named(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def test_the_configuration_is_valid_with_its_rules_and_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    shutil.copytree(FOLDER / "rules", tmp_path / "rules")
    text = (FOLDER / "prometheus.yml").read_text()
    at = "/run/secrets/tailfold_admin_token"
    assert at in text
    (tmp_path / "prometheus.yml").write_text(text.replace(at, str(token)))
    said = accepts("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert f"{len(RULE_FILES)} rule files found" in said


def test_the_rules_are_valid() -> None:
    accepts("promtool", "check", "rules", *RULE_FILES)


@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.stem)
def test_the_rules_do_what_their_unit_tests_say(file: Path) -> None:
    accepts("promtool", "test", "rules", file)


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDINGS], ids=named)
def test_a_rule_asks_only_for_what_there_is(rule: dict[str, Any]) -> None:
    assert complaints(rule["expr"]) == []


@pytest.mark.parametrize("rule", ALERTS, ids=named)
def test_an_alert_is_shown_firing(rule: dict[str, Any]) -> None:
    assert any(case.get("exp_alerts") for case in cases_of(rule["alert"]))


@pytest.mark.parametrize("alert", ["TailfoldNoReplicas", "TailfoldStoreDown", "TailfoldUpstreamFails"])
def test_an_alert_that_wakes_somebody_is_shown_quiet_too(alert: str) -> None:
    assert any(not case.get("exp_alerts") for case in cases_of(alert))


@pytest.mark.parametrize("rule", ALERTS, ids=named)
def test_an_alert_says_how_bad_it_is_and_is_explained(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert f"| `{rule['alert']}` |" in (ROOT / "docs/deploy.md").read_text()


@pytest.mark.parametrize("rule", RECORDINGS, ids=named)
def test_a_recording_rule_is_shown_with_its_value(rule: dict[str, Any]) -> None:
    tests = read_yaml(FOLDER / "tests/recording_test.yml")["tests"]
    assert any(rule["record"] in case["expr"] for test in tests for case in test["promql_expr_test"])


def test_the_job_has_the_name_that_alerts_ask_for() -> None:
    jobs = [job["job_name"] for job in read_yaml(FOLDER / "prometheus.yml")["scrape_configs"]]
    assert "tailfold" in jobs


def cases_of(alert: str) -> list[dict[str, Any]]:
    tests = read_yaml(FOLDER / "tests/alerts_test.yml")["tests"]
    return [case for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert]
