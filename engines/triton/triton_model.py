"""An engine as a Triton model: tensors in, tensors out, metrics under TensorRT-LLM's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bls import contract, engine_process, errors, manifest, triton_io
from bls.contract import ENGINE_PREFIX
from engines.triton import grammar_lanes, libraries, tensors
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.engine_metrics import EngineMetrics
from engines.triton.silence import Patience
from engines.triton.starting import start_each
from engines.worker import parameters
from engines.worker.generation import Limits
from engines.worker.grammar_process import GrammarStart
from engines.worker.launch import WorkerProcess
from engines.worker.scheduler import Statistics
from engines.worker.worker import Start


class EngineModel:
    """The engine of the tier that the model's name ends with, computed by what its config.pbtxt names."""

    def __init__(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        library, self._settings = libraries.choose(triton_io.parameters(args))
        tier = args["model_name"].removeprefix(ENGINE_PREFIX)
        folder = manifest.built_folder(triton_io.repository(args), tier)
        self._manifest = manifest.load(folder)
        start = Start(library.pipeline, folder, self._settings)
        self._metrics = EngineMetrics(args["model_name"], args["model_version"])
        self._engine = Engine(
            lambda: WorkerProcess(start),
            _pace(self._settings),
            Periods(self._settings.cancellation_check_period_ms / 1000, self._settings.stats_check_period_ms / 1000),
            self._metrics.publish,
            self._settings.max_queue_size,
            Patience(self._settings.frozen_worker_seconds, self._settings.longest_step_seconds),
            grammars=grammar_lanes.of(GrammarStart(library.grammars, folder, self._settings)),
        )
        engine_process.announce(args["model_name"])
        self._limits = limits_of(self._manifest, self._settings, self._engine.statistics)

    def execute(self, requests: Sequence[Any]) -> None:
        """Starts each request and returns; the responses follow from another thread."""
        start_each(requests, self._start)

    def close(self) -> None:
        self._engine.close()

    def _start(self, request: Any, sender: triton_io.Sender) -> None:
        triton_io.check_caller(request)
        arrays = triton_io.inputs(request, contract.ENGINE)
        if tensors.is_stop(arrays):
            self._stop(request.request_id(), sender)
            return
        as_data = bool(triton_io.request_parameters(request).get(triton_io.ERRORS_AS_DATA, False))
        read = replace(tensors.read(arrays, self._limits.end_ids, self._settings.exclude_input), errors_as_data=as_data)
        self._limits.check(read.generation)
        self._engine.submit(request.request_id(), read, frozenset(request.requested_output_names()), sender)

    def _stop(self, request_id: str, sender: triton_io.Sender) -> None:
        if not request_id:
            raise errors.BadRequest("stop needs the request id of the request to be stopped")
        self._engine.stop(request_id)
        sender.finish()


def _pace(settings: parameters.EngineParameters) -> Pace:
    if settings.stream_interval is not None:
        return Pace(tokens=settings.stream_interval)
    return Pace(seconds=settings.stream_min_interval_ms / 1000)


def limits_of(built: manifest.Manifest, settings: parameters.EngineParameters, statistics: Statistics) -> Limits:
    """What an engine with this model, these settings and this cache can take."""
    return Limits(
        context_tokens=built.context_tokens,
        vocab_size=built.vocab_size,
        end_ids=frozenset(built.end_ids),
        cache_tokens=statistics.total_blocks * statistics.block_tokens,
        prompt_tokens=built.context_tokens if settings.chunked_context else settings.max_num_tokens,
    )
