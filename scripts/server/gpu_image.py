"""The tritonserver and the Python of NVIDIA's image, in which GPUs are served: looked for, never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bls.paths import ROOT
from scripts.environment import Environment, SetupFailed
from scripts.host.preflight import Refused
from scripts.host.progress import Progress
from scripts.host.step import StepFailed, run_step
from scripts.host.step_output import first_line
from scripts.server import model_folders

IMAGE = "the image of the Dockerfile here (docker compose up)"
TRITONSERVER = Path("/opt/tritonserver/bin/tritonserver")
# What the python models import that is not of Python itself, by model.
PACKAGES = {
    "llm_router": ("numpy",),
    "preprocessing": ("jinja2", "sentencepiece", "tokenizers"),
    "text_classifier_onnx": ("onnxruntime",),
}
_MISSING = "import sys; from importlib.util import find_spec; print(*(m for m in sys.argv[1:] if find_spec(m) is None))"


@dataclass(frozen=True)
class Image:
    """An Installation of scripts/server/tritonserver.py. Backends and caches lie beside the server's own folder."""

    tritonserver: Path = TRITONSERVER
    root: Path = ROOT

    @property
    def backends(self) -> Path:
        return self.tritonserver.parent.parent / "backends"

    @property
    def libraries(self) -> list[Path]:
        return []  # the image sets LD_LIBRARY_PATH

    def variables(self) -> dict[str, str]:
        """The environment of tritonserver and its stubs, which find their packages through the first python3."""
        paths = [str(self.root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def check(self, repository: Path, models: Sequence[str], config_name: str | None, programs: Sequence[str]) -> None:
        """Refuses where the server, a backend, one of `programs` or a Python package is missing."""
        if not os.access(self.tritonserver, os.X_OK):
            raise Refused(
                f"{self.tritonserver} is missing: serve GPUs in {IMAGE}, or name the server with --tritonserver"
            )
        for program in programs:
            if not shutil.which(program):
                raise Refused(f"{program} is missing, which several MPI processes need; it is in {IMAGE}")
        backends = {
            model: model_folders.backend(model_folders.config(repository / model, config_name)) for model in models
        }
        for model, backend in backends.items():
            if backend not in ("", "ensemble") and not (self.backends / backend).is_dir():
                raise Refused(
                    f"{self.backends} has no {backend} backend, which {model} needs: use {IMAGE}, "
                    f"or leave the model out with --skip-model={model}"
                )
        python_models = [model for model, backend in backends.items() if backend == "python"]
        self._check_packages(sorted({name for model in python_models for name in PACKAGES.get(model, ())}))

    def _check_packages(self, packages: Sequence[str]) -> None:
        command = ["python3", "-c", _MISSING, *packages]
        try:
            found = subprocess.run(
                command, env=self.variables(), capture_output=True, text=True, check=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Refused(f"python3, which the Python models need, doesn't run: {error}") from None
        if found.stdout.strip():
            raise Refused(
                f"python3 lacks {', '.join(found.stdout.split())}: pip install --no-deps -r requirements-gpu.txt"
            )

    def compile_words(self, progress: Progress) -> None:
        """Compiles words/ if it has changed. Raises SetupFailed where there are no compiled lists to fall back to."""
        environment = Environment(self.root)
        if not environment.needs_words():
            return
        progress.step("set-up, word lists", "compiling")
        command = ["python3", "-m", "scripts.words", "compile"]
        try:
            environment.log.parent.mkdir(exist_ok=True)
            run_step(command, self.variables(), self.root, environment.log, progress, lambda line: None)
        except (StepFailed, OSError) as failed:
            reason = first_line(failed.lines) if isinstance(failed, StepFailed) else failed.strerror
            if not environment.compiled_words.exists():
                raise SetupFailed(f"words/ cannot be compiled: {reason}") from None
            progress.say(f"warning: words/ cannot be compiled: {reason}; the previously compiled lists stay in use")
        else:
            progress.done()
