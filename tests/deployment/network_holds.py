"""What must hold for ports, Services and NetworkPolicies of every release."""

from __future__ import annotations

from tests.deployment.chart import Object, argument, named, of_kind, pods, selects
from tests.deployment.release import gateway_options, gateways, invariant, server_of, serving, settings_of

TRITONS = {"triton-http", "triton-grpc"}


@invariant
def ports_are_those_that_the_programs_listen_at(objects):
    for pod in serving(objects):
        server, settings = server_of(pod), settings_of(server_of(pod))
        numbers = {
            "triton-http": settings.http_port,
            "triton-grpc": settings.grpc_port,
            "metrics": settings.metrics_port,
            "ready": settings.ready_port,
        }
        for port in server["ports"]:
            assert port["containerPort"] in numbers.values()
            assert port.get("name") is None or numbers.get(port["name"], port["containerPort"]) == port["containerPort"]
    for pod, container in gateways(objects):
        options = gateway_options(container)
        assert [port["containerPort"] for port in container["ports"]] == [options.port], pod.name
        assert options.triton == f"127.0.0.1:{settings_of(server_of(pod)).grpc_port}"


@invariant
def tritons_ports_are_reached_by_the_gateway_and_the_routers_alone(objects):
    """In a router pod by address, everywhere by NetworkPolicy."""
    policies = of_kind(objects, "NetworkPolicy")
    for pod in serving(objects):
        server = server_of(pod)
        if pod.owner["kind"] == "ServingRuntime":  # KServe's own port, and whoever may ask there
            continue
        guarding = [
            each["spec"] for each in policies if selects(each["spec"]["podSelector"]["matchLabels"], pod.labels)
        ]
        assert len(guarding) == 1, pod.name
        assert guarding[0]["policyTypes"] == ["Ingress"]
        if pod.component == "router":
            assert settings_of(server).host == "127.0.0.1" or opened(guarding[0]), pod.name
            continue
        for rule in guarding[0]["ingress"]:
            named_ports = {port["port"] for port in rule.get("ports", [])}
            if not named_ports or named_ports & TRITONS:
                assert rule["from"], pod.name
                for peer in rule["from"]:
                    (labels,) = [peer["podSelector"]["matchLabels"]]
                    assert labels["app.kubernetes.io/component"] in (
                        "router",
                        *([] if named_ports else [pod.component]),
                    )


def opened(policy: Object) -> bool:
    """Whether the peers for Triton's own ports are named, as triton.open asks for."""
    rules = [each for each in policy["ingress"] if {port["port"] for port in each["ports"]} & TRITONS]
    return bool(rules) and all(rule.get("from") for rule in rules)


@invariant
def what_a_policy_names_are_ports_of_its_pods(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        chosen = [pod for pod in pods(objects) if selects(policy["spec"]["podSelector"]["matchLabels"], pod.labels)]
        have = {port["name"] for pod in chosen for each in pod.containers for port in each.get("ports", [])}
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])} <= have


@invariant
def services_lead_to_ports_of_pods(objects):
    for service in of_kind(objects, "Service"):
        chosen = [pod for pod in pods(objects) if selects(service["spec"]["selector"], pod.labels)]
        assert chosen, service["metadata"]["name"]
        for pod in chosen:
            have = {port["name"] for each in pod.containers for port in each.get("ports", [])}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= have, pod.name


@invariant
def the_routers_name_every_tier_by_a_service_without_an_address(objects):
    for pod in serving(objects):
        server = server_of(pod)
        for word in [each for each in server["args"] if each.startswith("--remote=")]:
            tier, _, address = word.removeprefix("--remote=").partition("=")
            host, _, port = address.rpartition(":")
            name, namespace, *_ = host.split(".")
            service = named(objects, "Service", name)
            assert service and service["spec"]["clusterIP"] == "None" and namespace == "llm"
            assert not service["spec"].get("publishNotReadyAddresses", False)
            assert int(port) in {each["port"] for each in service["spec"]["ports"]}
            chosen = [each for each in pods(objects) if selects(service["spec"]["selector"], each.labels)]
            assert [each.component for each in chosen] == [tier] and is_serving_tier(server_of(chosen[0]), tier)


def is_serving_tier(server: Object, tier: str) -> bool:
    return f"--tier={tier}" in server["args"] and argument(server, "--host") == "0.0.0.0"


@invariant
def a_pool_is_of_the_router_pods_and_its_picker_may_read_them(objects):
    for pool in of_kind(objects, "InferencePool"):
        spec = pool["spec"]
        chosen = [pod for pod in pods(objects) if selects(spec["selector"]["matchLabels"], pod.labels)]
        assert [pod.component for pod in chosen] == ["router"]
        (_, container), *_ = gateways(objects)
        options = gateway_options(container)
        assert [each["number"] for each in spec["targetPorts"]] == [options.port]
        assert options.open_metrics
        assert chosen[0].labels["llm-d.ai/engine-type"] == "triton-tensorrt-llm"
