"""A tier on other machines as a Triton model: the same tensors as its engine here would have, and the same metrics."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bls import contract, engine_process, errors, manifest, triton_io
from bls.contract import ENGINE_PREFIX
from engines.remote import settings
from engines.remote.names import EJECTED, ERRORS, IN_FLIGHT
from engines.remote.pool import Pool
from engines.remote.tier import Tier
from engines.triton import identity, tensors
from engines.triton.engine_metrics import EngineMetrics
from engines.triton.starting import start_each

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 0.5


class RemoteModel:
    """The tier that the model's name ends with; config.pbtxt or LLM_ROUTER_REMOTE says where its servers are."""

    def __init__(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        model = args["model_name"]
        tier = model.removeprefix(ENGINE_PREFIX)
        own = identity.of(manifest.load(manifest.built_folder(triton_io.repository(args), tier)))
        self._tier = Tier(model, own, settings.read(triton_io.parameters(args), tier))
        self._metrics = RemoteMetrics(model, args["model_version"])
        self._closing = threading.Event()
        self._publish()
        self._publisher = threading.Thread(target=self._keep_publishing, name="metrics", daemon=True)
        self._publisher.start()
        engine_process.announce(model)

    def execute(self, requests: Sequence[Any]) -> None:
        """Starts each request and returns; the responses follow from another thread."""
        start_each(requests, self._start)

    def close(self) -> None:
        self._closing.set()
        self._publisher.join()
        self._tier.close()

    def _start(self, request: Any, sender: triton_io.Sender) -> None:
        triton_io.check_caller(request)
        arrays = triton_io.inputs(request, contract.ENGINE)
        if tensors.is_stop(arrays):
            if not request.request_id():
                raise errors.BadRequest("stop needs the request id of the request to be stopped")
            self._tier.stop(request.request_id())
            sender.finish()
            return
        if "input_ids" not in arrays:
            raise errors.BadRequest("input_ids is empty; at least 1 token is needed")
        self._tier.submit(
            request.request_id(),
            arrays,
            frozenset(request.requested_output_names()),
            sender,
            bool(triton_io.request_parameters(request).get(triton_io.ERRORS_AS_DATA, False)),
            request.timeout() / 1e6 or None,
        )

    def _keep_publishing(self) -> None:
        while not self._closing.wait(PUBLISH_SECONDS):
            try:
                self._publish()
            except Exception:  # A bug of ours, or a loop that is slow on a busy machine: the next one may succeed.
                log.exception("publishing")

    def _publish(self) -> None:
        self._metrics.publish(*self._tier.look(_figures))


Row = tuple[int, bool, Counter[str]]  # in flight, ejected, errors so far


def _figures(pool: Pool) -> tuple[dict[tuple[str, str], float], dict[str, Row]]:
    rows = {each.name: (each.in_flight, bool(each.why_not), Counter(each.errors)) for each in pool.all()}
    return pool.figures(), rows


class RemoteMetrics:
    """The tier's figures under TensorRT-LLM's names, and each endpoint's. All series are there from the beginning."""

    def __init__(self, model: str, version: str) -> None:
        self._model = model
        self._engine = EngineMetrics(model, version)
        self._metrics = triton_io.Metrics()
        self._metrics.declare(IN_FLIGHT, "GAUGE", "Requests of this server at an engine server")
        self._metrics.declare(ERRORS, "COUNTER", "Requests and looks that failed at an engine server, by why")
        self._metrics.declare(EJECTED, "GAUGE", "1 while an engine server gets no new requests")
        self._told: dict[str, Row] = {}

    def publish(self, values: Mapping[tuple[str, str], float], rows: Mapping[str, Row]) -> None:
        """`rows` by endpoint. One that is no longer among them has nothing in flight, and is not used."""
        self._engine.publish_values(values)
        gone = {name: (0, True, errors) for name, (_, _, errors) in self._told.items() if name not in rows}
        for name, row in {**gone, **rows}.items():
            if self._told.get(name) != row:
                self._tell(name, row)

    def _tell(self, name: str, row: Row) -> None:
        in_flight, is_ejected, errors = row
        labels = {"model": self._model, "endpoint": name}
        before = self._told[name][2] if name in self._told else Counter[str]()
        self._metrics.set(IN_FLIGHT, in_flight, **labels)
        self._metrics.set(EJECTED, int(is_ejected), **labels)
        for error, count in errors.items():
            # One that has come back begins to count anew.
            self._metrics.add(ERRORS, max(0, count - before[error]), **labels, error=error)
        self._told[name] = row
