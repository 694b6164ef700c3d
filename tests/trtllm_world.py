"""A machine with stand-ins for TensorRT-LLM, on which tests build engines through scripts/build_engines."""

from __future__ import annotations

import json
import os
import weakref
from pathlib import Path

import pytest

from engines import specs
from engines.specs import Spec
from engines.tensorrt_llm.spec import GpuSpec
from scripts import build_engines
from tests import huggingface_models, trtllm_stand_in


class World:
    """A machine with TensorRT-LLM's stand-ins, specs with one model for both tiers, and the folder of built engines."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.built = folder / "engines" / "built"
        self.model = huggingface_models.write(folder / "Tiny-Chat", eos_token_id=[0, 7])
        self.programs = trtllm_stand_in.install(folder)
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/bin:/bin")
        self.specify()

    def specify(self, **fields: object) -> None:
        self.spec = GpuSpec(**({"model": str(self.model), "max_seq_len": 256} | fields))
        tier = Spec("a==1", tensorrt_llm=self.spec)
        self.monkeypatch.setattr(specs, "load", lambda: {"small": tier, "large": tier})

    def fail(self, program: str, **how: object) -> None:
        self.monkeypatch.setenv("STAND_IN", json.dumps({"fails": program} | how))

    def go_well(self) -> None:
        self.monkeypatch.delenv("STAND_IN")

    def build(self, *arguments: str, tiers: tuple[str, ...] = ("small",), builder: str = "tensorrt_llm") -> int:
        """The exit status."""
        examples = ["--examples", str(self.folder / "examples")]
        return build_engines.main([*tiers, "--for", builder, *examples, *arguments], self.built)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.built.iterdir())

    def inode(self) -> int:
        """Another one if the tier's folder was replaced: nothing else gets the number of one that is still open."""
        kept = os.open(self.built / "small", os.O_RDONLY)
        weakref.finalize(self, os.close, kept)
        return os.fstat(kept).st_ino
