"""The fields of custom resources that the chart uses, with what their CRDs allow: whatever is not here is refused.

Written from the CRDs of
  InferencePool       kubernetes-sigs/gateway-api-inference-extension, config/crd/bases
  LeaderWorkerSet     kubernetes-sigs/lws, config/crd/bases
  ServingRuntime      kserve/kserve, config/crd/full
  ScaledObject        kedacore/keda, config/crd/bases
  ServiceMonitor, PrometheusRule   prometheus-operator/prometheus-operator, example/prometheus-operator-crd
as of 2026. Pod templates in them are checked as pods, by Kubernetes' own schema.
"""

from __future__ import annotations

from typing import Any

import jsonschema

from tests.deployment.chart import Object

Schema = dict[str, Any]


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _number(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
WORDS: Schema = {"type": "object", "additionalProperties": TEXT}
LABELS: Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "string",
        "maxLength": 63,
        "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    },
}
SHARE: Schema = {"type": ["integer", "string"]}
POD: Schema = {"type": "object"}  # checked as a pod
DURATION: Schema = {"type": "string", "pattern": "^(0|(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}
SCALING: Schema = {"type": "object"}  # autoscaling/v2's behavior, checked there

SPECS: dict[tuple[str, str], Schema] = {
    ("inference.networking.k8s.io/v1", "InferencePool"): _object(
        "endpointPickerRef",
        "selector",
        "targetPorts",
        selector=_object("matchLabels", matchLabels=LABELS),
        targetPorts=_list(_object("number", number=_number(1, 65535)), minItems=1, maxItems=8, uniqueItems=True),
        endpointPickerRef=_object(
            "name",
            name=NAME,
            kind=TEXT,
            port=_object("number", number=_number(1, 65535)),
            failureMode={"enum": ["FailOpen", "FailClose"]},
        ),
    ),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _object(
        "leaderWorkerTemplate",
        replicas=_number(0),
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        rolloutStrategy=_object(
            "type",
            type={"enum": ["RollingUpdate"]},
            rollingUpdateConfiguration=_object(maxSurge=SHARE, maxUnavailable=SHARE, partition=_number(0)),
        ),
        leaderWorkerTemplate=_object(
            "workerTemplate",
            size=_number(1),
            restartPolicy={"enum": ["Default", "RecreateGroupOnPodRestart", "None"]},
            leaderTemplate=POD,
            workerTemplate=POD,
        ),
    ),
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): _object(
        "containers",
        supportedModelFormats=_list(
            _object("name", name=TEXT, version=TEXT, autoSelect={"type": "boolean"}, priority=_number(1))
        ),
        protocolVersions=_list(TEXT),
        multiModel={"type": "boolean"},
        containers=_list(POD, minItems=1),
        volumes=_list(POD),
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): _object(
        "scaleTargetRef",
        "triggers",
        scaleTargetRef=_object("name", apiVersion=TEXT, kind=TEXT, name=TEXT),
        minReplicaCount=_number(0),
        maxReplicaCount=_number(1),
        pollingInterval=_number(1),
        cooldownPeriod=_number(0),
        fallback=_object(
            "failureThreshold",
            "replicas",
            failureThreshold=_number(0),
            replicas=_number(0),
            behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
        ),
        advanced=_object(horizontalPodAutoscalerConfig=_object(behavior=SCALING)),
        triggers=_list(
            _object(
                "metadata",
                "type",
                type={"enum": ["prometheus"]},
                metricType={"enum": ["AverageValue", "Value"]},
                metadata=_object("query", "serverAddress", "threshold", query=TEXT, serverAddress=TEXT, threshold=TEXT),
            ),
            minItems=1,
        ),
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _object(
        "endpoints",
        "selector",
        selector=_object(matchLabels=LABELS),
        endpoints=_list(
            _object(
                port=TEXT,
                path=TEXT,
                interval=DURATION,
                relabelings=_list(_object(sourceLabels=_list(TEXT), targetLabel=TEXT, replacement=TEXT)),
                metricRelabelings=_list(_object(sourceLabels=_list(TEXT), regex=TEXT, action={"enum": ["keep"]})),
            )
        ),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): _object(
        groups=_list(
            _object(
                "name",
                name=NAME,
                interval=DURATION,
                rules=_list(
                    _object(
                        "expr",
                        expr={"type": ["string", "integer"]},
                        alert=TEXT,
                        record=TEXT,
                        labels=WORDS,
                        annotations=WORDS,
                        **{"for": DURATION},
                    )
                ),
            )
        )
    ),
}


def check(resource: Object) -> None:
    """Raises jsonschema.ValidationError; KeyError for a kind that is none of these."""
    spec = SPECS[resource["apiVersion"], resource["kind"]]
    whole = _object(
        "apiVersion", "kind", "metadata", "spec", apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec
    )
    jsonschema.Draft202012Validator(whole).validate(resource)


def is_known(resource: Object) -> bool:
    """Whether the kind is one of these."""
    return (resource["apiVersion"], resource["kind"]) in SPECS
