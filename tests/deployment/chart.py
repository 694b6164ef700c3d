"""The chart of deploy/helm as helm renders it, and what is in a rendered release."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bls.paths import ROOT
from tests.deployment import helm

CHART = ROOT / "deploy" / "helm" / "llm-router"
# What a user would install: names of files in values/, each with those that it is meant to be used with.
SETS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu",),
    "gpu": ("gpu",),
    "tiers": ("tiers",),
    "tiers-lws": ("tiers-lws",),
    "keda": ("tiers", "keda"),
    "keda-whole": ("cpu", "keda"),
    "keda-lws": ("tiers-lws", "keda"),
    "hpa": ("tiers", "hpa"),
    "inference-pool": ("tiers", "inference-pool"),
    "keda-pool": ("cpu", "keda", "inference-pool"),
    "kserve": ("kserve",),
    "openshift": ("cpu", "openshift"),
}
Object = dict[str, Any]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm.program(), *words], capture_output=True, text=True, timeout=60)


def values_of(name: str, chart: Path = CHART) -> list[str]:
    return [f"--values={chart / 'values' / each}.yaml" for each in SETS[name]]


def template(*flags: str, chart: Path = CHART) -> list[Object]:
    """The objects of a release named `chat` in the namespace `llm`. Raises AssertionError with what helm said."""
    done = run("template", "chat", str(chart), "--namespace=llm", "--kube-version=1.34.0", *flags)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


@cache
def _rendered(name: str) -> str:
    return json.dumps(template(*values_of(name)))


def rendered(name: str) -> list[Object]:
    """Those of a set; a copy for whoever changes it."""
    found: list[Object] = json.loads(_rendered(name))
    return found


@dataclass(frozen=True)
class Pod:
    """A pod template. `owner` is the object it stands in."""

    owner: Object
    spec: Object
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def component(self) -> str:
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def name(self) -> str:
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def volumes(self) -> dict[str, Object]:
        return {each["name"]: each for each in self.spec.get("volumes", [])}

    def mount(self, container: Object, path: str) -> Object | None:
        """The mount at a path."""
        return next((each for each in container.get("volumeMounts", []) if each["mountPath"] == path), None)


def pods(objects: Sequence[Object]) -> Iterator[Pod]:
    """Every pod template of a release."""
    for owner in objects:
        spec = owner.get("spec", {})
        if owner["kind"] == "ServingRuntime":
            yield Pod(owner, spec)
        group = spec.get("leaderWorkerTemplate", {})
        for template in (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate")):
            if template:
                yield Pod(owner, template["spec"], template["metadata"]["labels"])


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def named(objects: Sequence[Object], kind: str, name: str) -> Object | None:
    return next((each for each in of_kind(objects, kind) if each["metadata"]["name"] == name), None)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether labels match; a selector that selects all is none of ours."""
    return bool(selector) and selector.items() <= labels.items()


def is_server(container: Object) -> bool:
    return "scripts/serve" in container.get("command", [])


def argument(container: Object, option: str) -> str | None:
    """What the container's last `--option=value` says."""
    found = [word.partition("=")[2] for word in container.get("args", []) if word.startswith(f"{option}=")]
    return found[-1] if found else None


def bytes_of(quantity: str) -> int:
    """A quantity of memory, such as 320Mi."""
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", quantity).groups()  # type: ignore[union-attr]
    return int(number) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[unit]
