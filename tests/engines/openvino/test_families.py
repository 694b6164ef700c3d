"""A GGUF file of each family that is taken is built and generates; the weights are random and made here."""

import pytest

from engines.builders import build
from engines.builders.model_files import GGUF_FAMILIES
from engines.openvino.pipeline import OpenVinoPipeline
from engines.specs import Spec
from engines.worker.generation import Generation
from engines.worker.parameters import EngineParameters
from engines.worker.scheduler import Scheduler
from tests import small_gguf
from tests.openvino_signals import signals_find_their_stack_after_openvino  # noqa: F401


@pytest.mark.parametrize("family", GGUF_FAMILIES)
def test_a_model_of_the_family_is_built_and_generates(tmp_path, family):
    file = small_gguf.write(tmp_path / f"tiny-{family}.F16.gguf", family)
    manifest = build.build(tmp_path / "built", "small", Spec(str(file)), lambda text: None)
    assert (manifest.name, manifest.context_tokens) == (f"tiny-{family}", small_gguf.CONTEXT)
    settings = EngineParameters(in_flight=True, cache_tokens=128, max_num_tokens=64)
    scheduler = Scheduler(OpenVinoPipeline(manifest, settings), 2)
    scheduler.add(0, Generation((5, 6, 7, 8), 6, frozenset({0}), min_tokens=6))
    ids = []
    while scheduler.is_busy:
        ids += [token for event in scheduler.step() for token in event.ids]
    assert len(ids) == 6 and all(0 <= token < manifest.vocab_size for token in ids)
