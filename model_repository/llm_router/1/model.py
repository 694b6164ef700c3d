"""The router's entry point, one process of many: its code is in bls/, its rules are in bls/policy.py."""

from bls import serving, triton_io
from bls.engines import Engines
from bls.router import Router
from bls.watcher import Watcher


class TritonPythonModel:
    def initialize(self, args):
        triton_io.log_to_triton()
        accumulate = triton_io.boolean_parameter(args, "accumulate_tokens", default=False)
        self.watcher = Watcher()
        models = triton_io.Models()
        engines = Engines(triton_io.repository(args), models)
        self.router = Router(models, engines, triton_io.Metrics(), accumulate)

    def execute(self, requests):
        # One after the other: two decoupled streams in one process can deadlock python_backend 24.10 for ever.
        for request in requests:
            serving.serve(request, self.router, self.watcher)

    def finalize(self):
        self.watcher.close()
