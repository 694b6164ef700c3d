"""The router's entry point, one process of many: its code is in bls/, its rules are in bls/policy.py."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from bls.loading_turn import loading_turn

with loading_turn():
    from bls import serving, triton_io
    from bls.engine_files import EngineFiles
    from bls.router import Router
    from bls.routing.service import PolicyService
    from bls.safety.beside import Beside
    from bls.safety.classifier import classifier
    from bls.safety.judge import PromptSafety
    from bls.watcher import Watcher
    from bls.words.table import words_beside


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        with loading_turn():
            self._initialize(args)

    def _initialize(self, args: Mapping[str, str]) -> None:
        triton_io.log_to_triton()
        accumulate = triton_io.boolean_parameter(args, "accumulate_tokens", default=False)
        is_filtering = triton_io.boolean_parameter(args, "sensitive_words", default=True)
        hides_cut = triton_io.boolean_parameter(args, "hide_cut_words", default=True)
        repository = triton_io.repository(args)
        words = words_beside(repository) if is_filtering else None
        self.watcher = Watcher()
        models = triton_io.Models()
        metrics = triton_io.Metrics()
        policy_file = triton_io.parameters(args).get("policy_file", "")
        self.policy = PolicyService(repository, policy_file, metrics, triton_io.instances(args))
        self.beside = Beside("classifier")
        safety = PromptSafety(words, classifier(models), beside=self.beside)
        safety.warm_up()
        engines = EngineFiles(repository, models)
        self.door = serving.Door.of(args)
        self.router = Router(models, engines, metrics, words, safety, accumulate, self.policy.routing, hides_cut)
        gc.collect()
        gc.freeze()  # What lives as long as the process needn't be looked through again with cold caches,
        gc.set_threshold(5000)  # nor what a request makes, of which hardly anything goes in circles.

    def execute(self, requests: Sequence[Any]) -> None:
        # One after the other: two decoupled streams in one process can deadlock python_backend 24.10 for ever.
        for request in requests:
            serving.serve(request, self.router, self.watcher, self.door)

    def finalize(self) -> None:
        self.watcher.close()
        self.beside.close()
        self.policy.close()
        gc.collect()  # What a request left must go before the shared memory that it lies in.
