"""What scales pods, by Prometheus' own unit tests: on series made by hand, and on those of saturated servers.

The recordings are of `scripts/serve cpu` on 2 cores; tests/deployment/record_metrics.py made them and holds how.
NVIDIA's rule is that of triton-inference-server/tutorials, Deployment/Kubernetes: queue time by compute time, target 1.
"""

from __future__ import annotations

import gzip
import json

import pytest
import yaml

from bls.paths import ROOT
from tests.deployment.chart import of_kind, rendered
from tests.deployment.test_monitoring import MONITORING, promtool

RECORDINGS = ROOT / "tests" / "data"
RULES = yaml.safe_load((MONITORING / "scaling.yml").read_text())["groups"]
ALERTS = {rule["alert"] for group in RULES for rule in group["rules"] if "alert" in rule}
POD = {"namespace": "llm", "release": "chat", "component": "router", "pod": "chat-llm-router-0"}
NVIDIA = {
    "record": "triton:queue_compute:ratio",
    "expr": "rate(nv_inference_queue_duration_us[1m]) / clamp_min(rate(nv_inference_compute_infer_duration_us[1m]), 1)",
}
SOON_S = 30


class Recording:
    """A server's metrics before and while it is saturated, scraped every `interval_s`."""

    def __init__(self, name):
        with gzip.open(RECORDINGS / f"saturated_{name}.json.gz") as file:
            self.told = json.load(file)
        self.interval_s = int(self.told["interval_s"])
        self.loaded_s = self.told["loaded_from"] * self.interval_s  # the first scrape under load
        self.end_s = len(next(iter(self.told["series"].values()))) * self.interval_s

    def input_series(self):
        labels = ",".join(f'{name}="{value}"' for name, value in POD.items())
        for name, values in self.told["series"].items():
            own = f"{name[:-1]},{labels}}}" if "{" in name else f"{name}{{{labels}}}"
            yield {"series": own, "values": " ".join("_" if each is None else f"{each:.0f}" for each in values)}

    def find(self, folder, *asked):
        """Asserts that each (seconds, expression) holds, by promtool with the real rules."""
        (folder / "nvidia.yml").write_text(yaml.safe_dump({"groups": [{"name": "nvidia", "rules": [NVIDIA]}]}))
        tests = {
            "rule_files": [str(MONITORING / "scaling.yml"), "nvidia.yml"],
            "evaluation_interval": f"{self.interval_s}s",
            "tests": [
                {
                    "interval": f"{self.interval_s}s",
                    "input_series": list(self.input_series()),
                    "promql_expr_test": [
                        {"expr": expression, "eval_time": f"{seconds}s", "exp_samples": [{"labels": "{}", "value": 1}]}
                        for seconds, expression in asked
                    ],
                }
            ],
        }
        (folder / "test.yml").write_text(yaml.safe_dump(tests, width=1_000_000))
        done = promtool("test", "rules", folder / "test.yml")
        assert done.returncode == 0, done.stdout + done.stderr


def targets(values):
    """By metric, what each pod should have of it, as the chart tells KEDA."""
    found = {}
    for scaler in of_kind(rendered(values), "ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            metric = trigger["metadata"]["query"].partition("(")[2].partition("{")[0]
            found[metric] = float(trigger["metadata"]["threshold"])
    return found


def desired(metric, target):
    """How many pods Kubernetes asks for."""
    return f"ceil(sum({metric}) / {target:g})"


@pytest.fixture(scope="module", params=["router", "engine", "engine_again"])
def recording(request):
    return Recording(request.param)


def test_the_rules_are_right_on_series_made_by_hand():
    done = promtool("test", "rules", MONITORING / "scaling_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_is_without_a_test_in_which_it_fires_and_a_paragraph_in_the_run_book():
    tests = yaml.safe_load((MONITORING / "scaling_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}
    assert fired == ALERTS
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert all(f"\n### {alert}\n" in page for alert in ALERTS)


def test_a_calm_server_stays_alone(recording, tmp_path):
    calm_s = recording.loaded_s - recording.interval_s
    recording.find(tmp_path, *((calm_s, f"{desired(*each)} <= bool 1") for each in targets("keda-whole").items()))


def test_a_saturated_router_gets_a_second_pod_within_half_a_minute_by_its_load(tmp_path):
    recording = Recording("router")
    load = desired("llm_router:router_load", targets("keda-whole")["llm_router:router_load"])
    recording.find(
        tmp_path, *((at, f"{load} >= bool 2") for at in range(recording.loaded_s + SOON_S, recording.end_s, 15))
    )


@pytest.mark.parametrize("name", ["engine", "engine_again"])
def test_a_saturated_engine_gets_further_pods_within_half_a_minute_by_what_waits(name, tmp_path):
    recording, of_tier = Recording(name), targets("keda")
    waiting = desired("llm_router:engine_waiting", of_tier["llm_router:engine_waiting"])
    load = desired("llm_router:engine_load", of_tier["llm_router:engine_load"])
    at = recording.loaded_s + SOON_S
    recording.find(tmp_path, (at, f"{waiting} >= bool 2"), (at, f"{load} >= bool 2"))


def test_a_tier_that_is_full_keeps_its_pods_though_nothing_waits(tmp_path):
    """What waits is 0 as long as all places do, which alone would ask for no pod at all."""
    recording = Recording("router")
    at = recording.end_s - recording.interval_s
    waiting, load = (f"llm_router:engine_{name}" for name in ("waiting", "load"))
    of_tier = targets("keda")
    recording.find(
        tmp_path,
        (at, f"{desired(waiting, of_tier[waiting])} == bool 0"),
        (at, f"{desired(load, of_tier[load])} >= bool 2"),
    )


def ratio(model):
    """How many pods NVIDIA's rule asks for where this model's counters decide."""
    return f'ceil(triton:queue_compute:ratio{{model="{model}"}} / 1)'


def test_nvidias_ratio_asks_for_no_second_pod_of_a_router_that_turns_requests_away(tmp_path):
    """The router's time of computing holds that of its answers, so what waits is a small part of it."""
    recording = Recording("router")
    recording.find(
        tmp_path,
        *(
            (at, f"max({ratio('llm_router')}) <= bool 1")
            for at in range(recording.loaded_s, recording.end_s, recording.interval_s)
        ),
        (recording.end_s - recording.interval_s, 'sum(rate(llm_router_finishes_total{finish="busy"}[1m])) > bool 10'),
    )


def test_nvidias_ratio_asks_for_one_pod_or_for_twenty_where_the_same_requests_wait(tmp_path):
    """Of an engine it compares how long requests took to be handed over with how long the handing over took."""
    asked = {"engine": "max(%s) >= bool 20", "engine_again": "max(%s) <= bool 1"}
    for name, expression in asked.items():
        recording = Recording(name)
        (tmp_path / name).mkdir()
        recording.find(
            tmp_path / name,
            *(
                each
                for at in range(recording.loaded_s + 5, recording.loaded_s + SOON_S + 1, 5)
                for each in (
                    (at, expression % ratio("tensorrt_llm_small")),
                    (at, "sum(llm_router:engine_waiting) == bool 64"),
                )
            ),
        )


def test_nvidias_ratio_asks_for_pods_of_an_engine_that_has_places_left(tmp_path):
    recording = Recording("router")
    large = 'nv_trt_llm_request_metrics{model="tensorrt_llm_large",request_type='
    at = recording.loaded_s + SOON_S
    recording.find(
        tmp_path,
        (at, f"max({ratio('tensorrt_llm_large')}) >= bool 2"),
        (at, f'sum({large}"scheduled"}}) / sum({large}"max"}}) < bool 0.5'),
        (at, f'sum({large}"waiting"}}) == bool 0'),
    )
