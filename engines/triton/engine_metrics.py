"""An engine's figures on Triton's metrics port, under TensorRT-LLM's names."""

from __future__ import annotations

from collections.abc import Mapping

from bls import triton_io
from engines.triton import metrics
from engines.worker.scheduler import Statistics


class EngineMetrics:
    """TensorRT-LLM's families, nv_trt_llm_..._metrics. What a library doesn't tell is left out."""

    def __init__(self, model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        self._metrics = triton_io.Metrics()
        self._declared: set[str] = set()
        self._published: dict[tuple[str, str], float] = {}

    def publish(self, now: Statistics) -> None:
        self.publish_values(metrics.values(now))

    def publish_values(self, values: Mapping[tuple[str, str], float]) -> None:
        """By family and kind, see engines/triton/metrics.py."""
        for (family, kind), value in values.items():
            # Each set is a round trip to the server: most values haven't changed.
            if self._published.get((family, kind)) != value:
                self._set(family, kind, value)
                self._published[family, kind] = value

    def _set(self, family: str, kind: str, value: float) -> None:
        name, (label, description) = f"nv_trt_llm_{family}_metrics", metrics.FAMILIES[family]
        if family not in self._declared:
            self._metrics.declare(name, "GAUGE", description)
            self._declared.add(family)
        self._metrics.set(name, value, **self._labels, **{label: kind})
