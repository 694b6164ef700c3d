"""An engine behind Triton's dynamic batcher: not decoupled, requests of one or more rows, one response each.

In flight, execute() hands each request over and returns: its response is sent when its last row has ended, while
requests that came later compute beside it. In static batching (V1), execute() returns when the whole batch has ended,
and only then sends its responses.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bls import contract, errors, manifest, triton_io
from bls.errors import BadRequest
from bls.ports import Sender
from engines.triton import grammar_lanes, libraries, tensors
from engines.triton.batch_answer import BatchAnswer, Held, error_of_row, in_both_names
from engines.triton.coalescer import Pace
from engines.triton.engine import Engine, Periods
from engines.triton.engine_metrics import EngineMetrics
from engines.triton.silence import Patience
from engines.triton.submission import Submission
from engines.triton.tensors import Arrays, EngineRequest
from engines.triton.triton_model import limits_of
from engines.worker.grammar_process import GrammarStart
from engines.worker.shared_launch import SharedWorker
from engines.worker.worker import Start

log = logging.getLogger(__name__)


class BatchModel:
    """`tier` says which built engine it serves, by what its config.pbtxt names. All instances share one process."""

    def __init__(self, args: Mapping[str, str], tier: str) -> None:
        triton_io.log_to_triton()
        library, self._settings = libraries.choose(triton_io.parameters(args))
        self._manifest = manifest.load(manifest.built_folder(triton_io.repository(args), tier))
        start = Start(library.pipeline, self._manifest.folder, self._settings)
        # The parent is the server: another one on this machine has engines of its own.
        scope = f"{os.getppid()} {args['model_name']} {args['model_version']}"
        self._metrics = EngineMetrics(args["model_name"], args["model_version"])
        self._engine = Engine(
            lambda: SharedWorker(start, scope),
            Pace(),
            Periods(self._settings.cancellation_check_period_ms / 1000, self._settings.stats_check_period_ms / 1000),
            self._metrics.publish,
            self._settings.max_queue_size,
            Patience(self._settings.frozen_worker_seconds, self._settings.longest_step_seconds),
            grammars=grammar_lanes.of(GrammarStart(library.grammars, self._manifest.folder, self._settings)),
        )
        self._limits = limits_of(self._manifest, self._settings, self._engine.statistics)

    def execute(self, requests: Sequence[Any]) -> None:
        """Every response goes by its request's sender, which Triton takes from a model that isn't decoupled as well."""
        if self._settings.in_flight:
            for request in requests:
                self._start([(request, triton_io.Sender(request))])
            return
        batch = [(request, Held(triton_io.Sender(request))) for request in requests]
        self._start(batch)
        for _, held in batch:
            held.wait()
        for _, held in batch:
            held.release()

    def close(self) -> None:
        self._engine.close()

    def _start(self, batch: Sequence[tuple[Any, Sender]]) -> None:
        """Begins all requests together; those that can't be read fail alone."""
        submissions: list[Submission] = []
        begun: list[Sender] = []
        for request, sender in batch:
            try:
                submissions += self._read(request, sender)
                begun.append(sender)
            except Exception as error:
                _fail(request, sender, error)
        try:
            if submissions:
                self._engine.submit_all(submissions)
        except errors.RouterError as error:
            for sender in begun:
                sender.finish(error=error)

    def _read(self, request: Any, sender: Sender) -> list[Submission]:
        triton_io.check_caller(request)
        arrays = triton_io.inputs(request, contract.ENGINE)
        rows = tensors.split_rows(arrays)
        read = [self._read_row(row, number, len(rows)) for number, row in enumerate(rows)]
        pad_ids = arrays["pad_id"].reshape(-1).tolist() if "pad_id" in arrays else [self._manifest.pad_id] * len(rows)
        return BatchAnswer(read, pad_ids, sender).submissions(frozenset(request.requested_output_names()))

    def _read_row(self, arrays: Arrays, number: int, rows: int) -> EngineRequest:
        try:
            if tensors.is_stop(arrays):
                raise BadRequest("stop is not supported by a model that is not decoupled; cancel the request")
            read = tensors.read(arrays, self._limits.end_ids, self._settings.exclude_input)
            if read.streaming:
                raise BadRequest("streaming is not supported by a model that is not decoupled")
            self._limits.check(read.generation)
        except BadRequest as error:
            raise error_of_row(in_both_names(error), number, rows) from None
        return read


def _fail(request: Any, sender: Sender, error: Exception) -> None:
    if isinstance(error, errors.RouterError):
        sender.finish(error=error)
    else:  # A bug of ours must not leave the caller waiting.
        log.exception("request %s", request.request_id())
        sender.finish(error=errors.EngineFailed(type(error).__name__))
