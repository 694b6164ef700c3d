"""The alerts, by Prometheus' own unit tests, and the dashboard's file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from itertools import combinations

import pytest
import yaml

from bls import errors, request_log
from bls.paths import ROOT
from bls.router import Router
from tests.fakes import FakeEngines, FakeMetrics, FakeModels

MONITORING = ROOT / "monitoring"
GROUPS = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((MONITORING / "grafana" / "llm_router.json").read_text())


def promtool(*arguments):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool; Debian's and Ubuntu's package prometheus has it")
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_prometheus_takes_the_configuration_and_the_rules():
    done = promtool("check", "config", MONITORING / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_only_then():
    done = promtool("test", "rules", MONITORING / "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_named_figure_is_what_its_series_make_of_it():
    done = promtool("test", "rules", MONITORING / "figures_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_shows_the_share_of_reused_blocks_as_the_named_figure_has_it():
    ((rule,),) = (group["rules"] for group in yaml.safe_load((MONITORING / "figures.yml").read_text())["groups"])
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    assert " ".join(rule["expr"].split()).replace("[5m]", "[$__rate_interval]") in shown


def test_no_alert_is_without_a_test_in_which_it_fires():
    tests = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_how_bad_it_is_and_has_a_paragraph_in_the_run_book(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == alert.lower()
    assert re.search(rf"^### {alert}$", (ROOT / page).read_text(), re.MULTILINE)


def test_the_run_book_has_no_alert_that_is_gone():
    assert re.findall(r"^### (\w+)$", (ROOT / "docs" / "docker.md").read_text(), re.MULTILINE) == list(ALERTS)


def test_no_two_panels_of_the_dashboard_share_a_number_or_a_place():
    panels = DASHBOARD["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert max(panel["gridPos"]["x"] + panel["gridPos"]["w"] for panel in panels) == 24


def test_each_panel_says_what_it_shows_and_in_which_unit():
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "row":
            assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            letters = [target["refId"] for target in panel["targets"]]
            assert len(letters) == len(set(letters)) and letters


def test_figures_that_the_dashboard_names_are_those_of_the_alerts():
    for panel in DASHBOARD["panels"]:
        for alert, limit in re.findall(
            r"(\w+) fires (?:above|below|when p99 is above) (\d+)", panel.get("description", "")
        ):
            (figure,) = re.findall(r"[<>] ([\d.]+)", ALERTS[alert]["expr"])[:1] or [None]
            assert float(limit) in (float(figure), round(float(figure) * 100)), alert


def test_every_panel_asks_the_datasource_that_the_reader_chose():
    (source,) = yaml.safe_load((MONITORING / "grafana" / "datasource.yml").read_text())["datasources"]
    (choice,) = DASHBOARD["templating"]["list"]
    assert (choice["type"], choice["query"], source["isDefault"]) == ("datasource", source["type"], True)
    asking = [*DASHBOARD["annotations"]["list"], *(panel for panel in DASHBOARD["panels"] if panel["type"] != "row")]
    assert all(each["datasource"]["uid"] == f"${{{choice['name']}}}" for each in asking)


COUNTED = re.compile(r"\b(llm_router_\w+?)(?:_bucket)?\{?(?:(\w+)=~?\"([^\"]*)\")?[}\[]")


# Of the readiness page and of the policy's own thread, which have tests of their own.
OTHERS = ("llm_router_model", "llm_router_shared", "llm_router_server", "llm_router_breakers", "llm_router_policy_re")


def test_what_an_alert_reads_of_the_router_is_there_before_the_first_request():
    """Else the first burst is the birth of its series, which no increase() sees."""
    metrics = FakeMetrics()
    Router(FakeModels(), FakeEngines(), metrics)
    shown = {name for name, *_ in (*metrics.values, *metrics.seen)}
    for alert, rule in ALERTS.items():
        for name, label, values in COUNTED.findall(rule["expr"]):
            if name.startswith(OTHERS):
                continue
            assert name in shown, (alert, name)
            for value in values.split("|") if label else ():
                assert (name, value) in metrics.values, (alert, name, value)


def test_every_end_of_a_request_is_counted_from_the_start():
    ends = {error.prefix.lower() for error in vars(errors).values() if isinstance(getattr(error, "prefix", None), str)}
    assert ends <= {*request_log._ENDS, *request_log._ERRORS}
