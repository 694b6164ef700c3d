"""The Helm chart: every set of values, rendered by the real helm, against Kubernetes' schemas and what must hold."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from bls.paths import ROOT
from scripts.host.preflight import Refused
from tests.deployment import crds, network_holds, pods_hold, release_holds
from tests.deployment.chart import CHART, SETS, named, of_kind, pods, rendered, run, template, values_of
from tests.deployment.release import INVARIANTS

assert network_holds and pods_hold and release_holds  # which fill INVARIANTS
MUTATIONS = yaml.safe_load(Path(__file__).with_name("mutations.yaml").read_text())
VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
each_set = pytest.mark.parametrize("values", SETS)


@each_set
def test_helm_finds_no_fault(values):
    done = run("lint", "--strict", "--quiet", str(CHART), *values_of(values))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_of_values_is_in_a_set():
    assert {path.stem for path in (CHART / "values").iterdir()} == set(chain(*SETS.values()))


def kubernetes_objects(objects):
    """Those that Kubernetes' own schemas know, with the pods of custom resources in their place."""
    for each in objects:
        if not crds.is_known(each):
            yield each
    for pod in pods(objects):
        if crds.is_known(pod.owner):
            spec = {name: pod.spec[name] for name in pod.spec if name not in RUNTIME}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": pod.labels}, "spec": spec}
    for each in of_kind(objects, "ScaledObject"):
        yield {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "x"},
            "spec": {
                "maxReplicas": 2,
                "scaleTargetRef": each["spec"]["scaleTargetRef"],
                "behavior": each["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
            },
        }


RUNTIME = {"supportedModelFormats", "protocolVersions", "multiModel"}  # of a ServingRuntime, whose rest is a pod's


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_of_kubernetes(version):
    seen = set()
    for values in SETS:
        for each in kubernetes_objects(rendered(values)):
            if (text := yaml.safe_dump(each)) not in seen:
                seen.add(text)
                kubernetes_validate.validate(each, version, strict=True)


@each_set
def test_every_custom_resource_has_only_fields_of_its_kind(values):
    for each in rendered(values):
        if crds.is_known(each):
            crds.check(each)


def test_every_kind_of_custom_resource_is_rendered_by_some_set():
    found = {(each["apiVersion"], each["kind"]) for values in SETS for each in rendered(values)}
    assert found >= set(crds.SPECS)


@pytest.mark.parametrize("kind", [kind for _, kind in crds.SPECS])
def test_a_misspelt_field_of_a_custom_resource_is_found(kind):
    resource = next(each for values in SETS for each in of_kind(rendered(values), kind))
    name = next(iter(resource["spec"]))
    resource["spec"][f"{name}z"] = resource["spec"].pop(name)
    with pytest.raises(jsonschema.ValidationError):
        crds.check(resource)


def test_a_misspelt_field_of_a_container_is_found():
    (deployment,) = of_kind(rendered("cpu"), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


@pytest.mark.parametrize("holds", INVARIANTS, ids=lambda holds: holds.__name__)
@each_set
def test_invariant(holds, values):
    holds(rendered(values))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation["name"])
def test_a_mistake_is_found(mutation, tmp_path):
    chart = tmp_path / "llm-router"
    shutil.copytree(CHART, chart)
    file = chart / mutation["file"]
    text = file.read_text()
    assert mutation["old"] in text
    file.write_text(text.replace(mutation["old"], mutation["new"]))
    objects = template(*values_of(mutation.get("set", "cpu"), chart), chart=chart)
    assert not all(is_true_of(objects, holds) for holds in INVARIANTS)


def is_true_of(objects, holds):
    """Whether an invariant holds; what it doesn't find at all is a fault too."""
    try:
        holds(objects)
    except (AssertionError, LookupError, TypeError, ValueError, Refused):
        return False
    return True


TYPOS = [
    ("gatewy.open=true", "gatewy"),
    ("gateway.opn=true", "opn"),
    ("router.replica=3", "replica"),
    ("tiers.medium.replicas=1", "medium"),
    ("router.resources.limit.memory=1Gi", "limit"),
    ("target=tpu", "target"),
    ("topology=tier", "topology"),
    ("autoscaling.kind=vpa", "kind"),
    ("image.tag=latest", "tag"),
    ("podSecurityContext.runAsNonRoot=false", "runAsNonRoot"),
    ("podSecurityContext.runAsUser=0", "runAsUser"),
    ("router.resources.limits.memory=lots", "memory"),
    ("tiers.large.kind=StatefulSet", "kind"),
    ("tiers.large.kind=LeaderWorkerSet", "size"),
    ("target=gpu", "claim"),
    ("engines.build=true", "target"),
    ("triton.open=true", "clients"),
    ("router.instances=0", "instances"),
    ("longestAnswerSeconds=0", "longestAnswerSeconds"),
    ("words.files.deny/x=y", "deny/x"),
    ("autoscaling.router.load=7", "load"),
    ("autoscaling.router.min=0", "min"),
    ("autoscaling.kind=keda,autoscaling.router.max=1", "max is 1; it must be min, 2"),
]


@pytest.mark.parametrize(("setting", "named"), TYPOS)
def test_a_value_that_is_misspelt_or_does_not_fit_is_refused_by_name(setting, named):
    done = run("template", "chat", str(CHART), "--set", setting)
    assert done.returncode != 0 and named in done.stderr, done.stderr


def test_each_value_has_a_place_in_the_schema():
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version"))
    assert version == f'version = "{chart["appVersion"]}"'
    assert chart["kubeVersion"] == ">=1.30.0-0"


def test_an_older_kubernetes_is_refused_by_its_version():
    done = run("template", "chat", str(CHART), "--kube-version=1.29.0")
    assert done.returncode != 0 and "1.29" in done.stderr


def test_a_policy_and_words_of_ones_own_take_the_place_of_those_shipped(tmp_path):
    policy = tmp_path / "policy.py"
    policy.write_text((ROOT / "bls" / "policy.py").read_text().replace("RETRIES = 1", "RETRIES = 2"))
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump({"words": {"files": {"deny/mine.txt": "zorp\n", "deny/drugs.txt": "none\n"}}})
    )
    objects = template(f"--set-file=policy={policy}", f"--values={tmp_path / 'mine.yaml'}")
    assert named(objects, "ConfigMap", "chat-llm-router-policy")["data"]["policy.py"] == policy.read_text()
    words = named(objects, "ConfigMap", "chat-llm-router-words")["data"]
    assert (words["deny.mine.txt"], words["deny.drugs.txt"]) == ("zorp\n", "none\n")
    assert words["deny.weapons.txt"] == (ROOT / "words" / "deny" / "weapons.txt").read_text()
    for holds in INVARIANTS:
        holds(objects)


def test_the_config_maps_hold_what_the_repository_has():
    objects = rendered("cpu")
    assert named(objects, "ConfigMap", "chat-llm-router-policy")["data"] == {
        "policy.py": (ROOT / "bls" / "policy.py").read_text()
    }
    words = named(objects, "ConfigMap", "chat-llm-router-words")["data"]
    lists = [*(ROOT / "words").glob("*/*.txt"), ROOT / "words" / "categories.toml"]
    assert words == {str(path.relative_to(ROOT / "words")).replace("/", "."): path.read_text() for path in lists}


def test_a_packaged_chart_has_all_that_the_folder_links_to(tmp_path):
    done = run("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.iterdir()
    assert template(chart=package) == template()
    assert package.stat().st_size < 200_000  # no compiled word lists


def test_a_long_name_of_a_release_is_cut_where_kubernetes_would_refuse_it():
    done = run("template", "chat" * 13, str(CHART), *values_of("tiers"), *values_of("gpu"), "--set=topology=tiers")
    assert done.returncode == 0, done.stderr
    for each in filter(None, yaml.load_all(done.stdout, yaml.CSafeLoader)):
        assert len(each["metadata"]["name"]) <= 63
        if not crds.is_known(each):
            kubernetes_validate.validate(each, VERSIONS[-1], strict=True)


def test_an_open_gateway_is_what_was_asked_for_and_prometheus_reads_it():
    objects = template("--set=gateway.open=true", "--set=gateway.openMetrics=true", "--set=monitoring.enabled=true")
    for holds in INVARIANTS:
        holds(objects)
    crds.check(*of_kind(objects, "ServiceMonitor"))
    (deployment,) = of_kind(objects, "Deployment")
    assert not any("secret" in volume for volume in deployment["spec"]["template"]["spec"]["volumes"])


def test_opened_ports_of_triton_are_for_named_peers_alone(tmp_path):
    (tmp_path / "open.yaml").write_text(
        yaml.safe_dump({"triton": {"open": True, "clients": [{"podSelector": {"matchLabels": {"app": "batch"}}}]}})
    )
    objects = template(f"--values={tmp_path / 'open.yaml'}")
    for holds in INVARIANTS:
        holds(objects)
    (policy,) = of_kind(objects, "NetworkPolicy")
    ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert {"triton-http", "triton-grpc"} <= ports
    service = named(objects, "Service", "chat-llm-router")
    assert [port["port"] for port in service["spec"]["ports"]] == [80, 8000, 8001]


@each_set
def test_the_notes_say_what_to_do_next(values):
    done = run("install", "chat", str(CHART), "--dry-run=client", "--namespace=llm", *values_of(values))
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    assert "kubectl --namespace llm" in notes and "WARNING" not in notes
    assert all(len(line) < 400 for line in notes.splitlines())
