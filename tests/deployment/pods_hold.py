"""What must hold for the pods of every release: memory, probes, time to end, rights, volumes.

The figures are those of the code: shared memory, drain and unloading are computed here as scripts/serve does.
"""

from __future__ import annotations

import re
from pathlib import Path

from bls.routing.check import check as check_policy
from scripts import build_engines
from scripts.host.preflight import MIB, shm_needed_mib
from scripts.server import drain, model_folders
from tests.deployment.chart import argument, bytes_of, is_server, named, of_kind, pods
from tests.deployment.release import (
    all_volumes,
    gateway_options,
    gateways,
    invariant,
    policy_of,
    port_number,
    router_instances,
    server_of,
    serving,
    settings_of,
)

CONFIG_MAP_BYTES = 1 << 20
ROUTER_PROCESS_BYTES = 27 * MIB  # README.md, Figures


@invariant
def shared_memory_is_as_large_as_scripts_serve_asks_for(objects):
    for pod in serving(objects):
        server, settings = server_of(pod), settings_of(server_of(pod))
        volume = pod.volumes[pod.mount(server, "/dev/shm")["name"]]["emptyDir"]
        assert volume["medium"] == "Memory", pod.name
        instances = model_folders.python_instances(settings.repository, list(settings.models), settings.config_name)
        size = bytes_of(volume["sizeLimit"]) // MIB
        asked = -(-2 * shm_needed_mib(instances) // 64) * 64  # twice what must be free, as its advice says
        assert size >= asked, (pod.name, instances, size)
        assert size % 1024 == asked % 1024, (pod.name, instances, size, asked)  # the extra is in whole GiB


@invariant
def the_memory_limit_holds_the_shared_memory_and_the_processes(objects):
    for pod in serving(objects):
        server = server_of(pod)
        volume = pod.volumes[pod.mount(server, "/dev/shm")["name"]]["emptyDir"]
        processes = ROUTER_PROCESS_BYTES * router_instances(objects) if pod.component == "router" else 0
        assert bytes_of(server["resources"]["limits"]["memory"]) >= bytes_of(volume["sizeLimit"]) + processes, pod.name


@invariant
def probes_ask_what_knows_it(objects):
    expected = {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}
    for pod in serving(objects):
        server = server_of(pod)
        ready = str(settings_of(server).ready_port)
        assert {name: server[name]["httpGet"]["path"] for name in expected} == expected, pod.name
        assert {port_number(server, server[name]["httpGet"]["port"]) for name in expected} == {int(ready)}
        patience = server["startupProbe"]["periodSeconds"] * server["startupProbe"]["failureThreshold"]
        assert patience >= 300, pod.name  # models load for minutes
        for container in pod.containers:
            if container["name"] == "gateway":
                paths = {**expected, "startupProbe": "/health"}
                assert {name: container[name]["httpGet"]["path"] for name in paths} == paths
                ports = {port_number(container, container[name]["httpGet"]["port"]) for name in paths}
                assert ports == {gateway_options(container).port}


@invariant
def a_pod_has_time_for_its_last_answers(objects):
    policy = policy_of(objects)
    for pod in serving(objects):
        if pod.owner["kind"] == "ServingRuntime":  # The InferenceService says it: NOTES.txt.
            continue
        waits = [
            each.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0) for each in pod.containers
        ]
        assert max(waits) >= 5, pod.name  # until it has left every Service
        longest = max(policy.settings.timeout_seconds, settings_of(server_of(pod)).drain_s)
        assert pod.spec["terminationGracePeriodSeconds"] >= max(waits) + longest + drain.UNLOAD_S, pod.name
        assert settings_of(server_of(pod)).drain_s >= policy.settings.timeout_seconds, pod.name
    for pod, container in gateways(objects):
        options = gateway_options(container)
        assert options.drain_s >= options.timeout_s >= policy.settings.timeout_seconds, pod.name


@invariant
def the_gateway_ends_before_the_server_that_its_answers_need(objects):
    for pod, container in gateways(objects):
        assert [each["name"] for each in pod.spec["containers"]] == ["gateway"]
        kept = {each["name"]: each.get("restartPolicy") for each in pod.spec["initContainers"]}
        assert kept == {"words": "Always", "triton": "Always"}, pod.name
        assert "preStop" in container["lifecycle"], pod.name


@invariant
def nothing_runs_as_root_or_writes_its_root(objects):
    for pod in pods(objects):
        runtime = pod.owner["kind"] == "ServingRuntime"  # which has no security context for the pod
        pod_security = pod.spec.get("securityContext", {})
        assert runtime or (pod_security["runAsNonRoot"] is True and pod_security["seccompProfile"]), pod.name
        assert runtime or pod.spec["automountServiceAccountToken"] is False, pod.name
        is_job = pod.owner["kind"] == "Job"
        assert runtime or is_job or pod.spec["shareProcessNamespace"] is True, pod.name  # or the dead are never reaped
        for container in pod.containers:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, container["name"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert not runtime or security["runAsNonRoot"] is True


@invariant
def what_is_written_has_a_volume_and_the_rest_is_read_only(objects):
    for pod in pods(objects):
        for container in pod.containers:
            mounts = container.get("volumeMounts", [])
            assert {each["name"] for each in mounts} <= set(pod.volumes), (pod.name, container["name"])
            for mount in mounts:
                volume = pod.volumes[mount["name"]]
                is_config = "configMap" in volume or "secret" in volume
                assert mount.get("readOnly", False) is True or not is_config, (pod.name, mount)
                # Kubelet never updates a file that is mounted by itself.
                assert "subPath" not in mount, (pod.name, mount)
            if is_server(container) or container["name"] == "gateway":
                written = {"/tmp", "/opt/llm-router/logs"} | ({"/dev/shm"} if is_server(container) else set())
                for path in written:
                    mount = pod.mount(container, path)
                    assert mount and not mount.get("readOnly") and "emptyDir" in pod.volumes[mount["name"]], path


@invariant
def policy_and_words_are_mounted_where_the_server_looks(objects):
    for pod in serving(objects):
        if pod.component not in ("router", ""):
            continue
        server = server_of(pod)
        env = {each["name"]: each["value"] for each in server["env"]}
        folder, _, file = env["LLM_ROUTER_POLICY"].rpartition("/")
        policy = named(objects, "ConfigMap", pod.volumes[pod.mount(server, folder)["name"]]["configMap"]["name"])
        assert policy and file in policy["data"], pod.name
        if "LLM_ROUTER_WORDS" not in env:
            continue
        (words,) = [each for each in pod.containers if each["name"] == "words"]
        assert argument(words, "--output") == f"{env['LLM_ROUTER_WORDS']}/compiled.bin"
        shared = pod.mount(server, env["LLM_ROUTER_WORDS"])
        assert shared["name"] == pod.mount(words, env["LLM_ROUTER_WORDS"])["name"]
        assert words["startupProbe"]["exec"]["command"][-1] == argument(words, "--output")
        lists = pod.volumes[pod.mount(words, argument(words, "--folder"))["name"]]["configMap"]
        data = named(objects, "ConfigMap", lists["name"])["data"]
        assert {item["key"] for item in lists["items"]} == set(data) and "categories.toml" in data


@invariant
def config_maps_are_small_enough_and_the_policy_is_good(objects):
    for each in of_kind(objects, "ConfigMap"):
        assert sum(len(key) + len(text.encode()) for key, text in each["data"].items()) < CONFIG_MAP_BYTES
        assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in each["data"])
        if "policy.py" in each["data"]:
            check_policy(Path("policy.py"), each["data"]["policy.py"].encode())


@invariant
def images_have_a_version(objects):
    for pod in pods(objects):
        for container in pod.containers:
            tag = container["image"].rpartition(":")[2]
            assert re.fullmatch(r"(cpu|gpu|gateway)-\d+\.\d+\.\d+", tag), container["image"]


@invariant
def containers_say_what_they_take(objects):
    for pod in pods(objects):
        for container in pod.containers:
            resources = container["resources"]
            assert {"cpu", "memory"} <= set(resources["requests"]), container["name"]
            assert "memory" in resources["limits"], container["name"]
            asked, most = (bytes_of(resources[kind]["memory"]) for kind in ("requests", "limits"))
            assert asked <= most, container["name"]


@invariant
def gpus_are_asked_for_where_engines_need_them(objects):
    for pod in serving(objects):
        server = server_of(pod)
        on_gpus = server["command"][-1] == "gpu"
        computes = settings_of(server).models and (
            pod.component != "router" or not any("--remote=" in each for each in server["args"])
        )
        assert bool(server["resources"]["limits"].get("nvidia.com/gpu")) == (on_gpus and computes), pod.name
        assert server["image"].rpartition(":")[2].startswith("gpu-" if on_gpus else "cpu-")


@invariant
def a_job_builds_what_the_servers_load(objects):
    for owner in of_kind(objects, "Job"):
        (pod,) = [each for each in pods(objects) if each.owner is owner]
        built = []
        for container in pod.containers:
            parser = build_engines._parser()
            options = parser.parse_args(container["args"])
            build_engines._check(parser, options)
            built += options.tiers
            paths = {each["mountPath"] for each in container["volumeMounts"] if each["name"] == "engines"}
            assert paths == {"/engines", "/opt/llm-router/engines/built"}
        assert sorted(built) == ["classifier", "large", "small"]
        claims = {
            each["persistentVolumeClaim"]["claimName"]
            for each in all_volumes(objects)
            if "persistentVolumeClaim" in each
        }
        assert len(claims) == 1


@invariant
def the_gateway_has_keys_or_is_open_on_purpose(objects):
    for pod, container in gateways(objects):
        options = gateway_options(container)
        assert (options.keys is None) == options.open
        if options.keys:
            mount = pod.mount(container, str(options.keys.parent))
            assert mount and "secret" in pod.volumes[mount["name"]], pod.name
        assert options.host == "0.0.0.0"
