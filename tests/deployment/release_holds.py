"""What must hold for selectors, rollouts, disruption budgets, monitoring and scaling of every release."""

from __future__ import annotations

import re

from tests.deployment.chart import named, of_kind, pods, selects
from tests.deployment.release import gateway_options, gateways, invariant, server_of, serving


@invariant
def selectors_match_their_own_pods_and_no_others(objects):
    for owner in of_kind(objects, "Deployment"):
        selector = owner["spec"]["selector"]["matchLabels"]
        assert [pod.name for pod in pods(objects) if selects(selector, pod.labels)] == [
            f"Deployment/{owner['metadata']['name']}"
        ]
    for pod in pods(objects):
        for spread in pod.spec.get("topologySpreadConstraints", []):
            assert selects(spread["labelSelector"]["matchLabels"], pod.labels), pod.name
    for pod in serving(objects):
        if pod.owner["kind"] != "ServingRuntime":
            keys = {each["topologyKey"] for each in pod.spec["topologySpreadConstraints"]}
            assert "kubernetes.io/hostname" in keys, pod.name


@invariant
def a_drained_node_takes_one_pod_at_a_time(objects):
    budgets = [each["spec"] for each in of_kind(objects, "PodDisruptionBudget")]
    for pod in serving(objects):
        if pod.owner["kind"] != "ServingRuntime":
            (budget,) = [each for each in budgets if selects(each["selector"]["matchLabels"], pod.labels)]
            assert budget["maxUnavailable"] == 1, pod.name


@invariant
def a_rollout_keeps_what_serves(objects):
    for owner in of_kind(objects, "Deployment"):
        rolling = owner["spec"]["strategy"]["rollingUpdate"]
        assert (rolling["maxSurge"], rolling["maxUnavailable"]) in ((1, 0), (0, 1)), owner["metadata"]["name"]
        (pod,) = [each for each in pods(objects) if each.owner is owner]
        probe = server_of(pod)["startupProbe"]
        assert owner["spec"]["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]


@invariant
def what_prometheus_is_told_to_read_is_there(objects):
    for monitor in of_kind(objects, "ServiceMonitor"):
        found = [
            each
            for each in of_kind(objects, "Service")
            if selects(monitor["spec"]["selector"]["matchLabels"], each["metadata"]["labels"])
        ]
        endpoints = {each["port"]: each for each in monitor["spec"]["endpoints"]}
        opened = any(gateway_options(container).open_metrics for _, container in gateways(objects))
        assert set(endpoints) == {"metrics", "ready"} | ({"openai"} if opened else set())
        for each in found:
            is_router = each["spec"]["selector"]["app.kubernetes.io/component"] == "router"
            wanted = set(endpoints) if is_router else {"metrics", "ready"}
            assert wanted <= {port["name"] for port in each["spec"]["ports"]}
        # Triton's series are on the gateway's page too, and would be counted twice.
        kept = [{"sourceLabels": ["__name__"], "regex": "llm_gateway_.*", "action": "keep"}]
        assert not opened or endpoints["openai"]["metricRelabelings"] == kept
        components = {each["spec"]["selector"]["app.kubernetes.io/component"] for each in found}
        assert components == {pod.component for pod in serving(objects)}
        for endpoint in monitor["spec"]["endpoints"]:
            labels = {each["targetLabel"] for each in endpoint["relabelings"]}
            assert labels == {"job", "component", "release"}
            assert int(endpoint["interval"].removesuffix("s")) <= 5  # else nothing scales within 30 s


@invariant
def what_is_scaled_is_there_and_by_what_is_recorded(objects):
    groups = [group for each in of_kind(objects, "PrometheusRule") for group in each["spec"]["groups"]]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    scaled = set()
    for scaler in of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler"):
        spec = scaler["spec"]
        target = named(objects, spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"])
        assert target and target["apiVersion"] == spec["scaleTargetRef"]["apiVersion"]
        assert "replicas" not in target["spec"], "each upgrade would undo the scaling"
        scaled.add(target["metadata"]["name"])
        if scaler["kind"] == "ScaledObject":
            found = [re.fullmatch(r"sum\(([\w:]+)\{(.*)\}\)", each["metadata"]["query"]) for each in spec["triggers"]]
            names = {each[1] for each in found}
            (selected,) = {each[2] for each in found}
            component = target["metadata"]["labels"]["app.kubernetes.io/component"]
            assert selected == f'namespace="llm",release="chat",component="{component}"'
            least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
            behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        else:
            names = {
                each["pods"]["metric"]["name"].replace("llm_router_", "llm_router:", 1) for each in spec["metrics"]
            }
            least, most, behaviour = spec["minReplicas"], spec["maxReplicas"], spec["behavior"]
        assert names and names <= recorded
        # A count of what waits alone would shrink a tier whose places are all taken: it is 0 while nothing waits.
        assert names & {"llm_router:router_load", "llm_router:engine_load"}
        assert 0 < least < most
        assert behaviour["scaleUp"]["stabilizationWindowSeconds"] == 0
        assert behaviour["scaleDown"]["stabilizationWindowSeconds"] >= 300
        assert behaviour["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 120}]
    if scaled:
        workloads = of_kind(objects, "Deployment", "LeaderWorkerSet")
        assert scaled == {each["metadata"]["name"] for each in workloads}


@invariant
def labels_say_whose_everything_is(objects):
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "chat" and labels["app.kubernetes.io/name"] == "llm-router"
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", each["metadata"]["name"])
