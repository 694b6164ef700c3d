"""The kinds of the text classifier that scripts.bench classifier compares, as a model repository."""

from __future__ import annotations

import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bls import manifest
from bls.contract import TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER
from bls.paths import ROOT
from engines.classifier import build, evaluation, examples
from engines.classifier import manifest as text_manifest
from engines.classifier.labels import LABELS
from engines.classifier.manifest import CLASSIFIER, TextManifest

SOURCE = ROOT / "model_repository"


def make_repository(folder: Path, cores: int) -> Path:
    """The three models as they are, and the same classifier in the other kinds."""
    repository = folder / "model_repository"
    for model in (TEXT_TOKENIZER, TEXT_CLASSIFIER, TEXT_PIPELINE):
        shutil.copytree(SOURCE / model, repository / model, symlinks=True)
    shutil.copytree(manifest.built_folder(SOURCE, CLASSIFIER), folder / "engines" / "built" / CLASSIFIER)
    for kind, threads in (("plain", cores), ("plain1", 1)):
        _write(repository, kind, plain(_config(repository, kind), threads))
    _write(repository, "int8", _config(repository, "int8"))
    _make_int8(repository, folder / "engines" / "built")
    return repository


def _config(repository: Path, kind: str) -> str:
    text = (repository / TEXT_CLASSIFIER / "configs" / "cpu.pbtxt").read_text()
    return text.replace(f'name: "{TEXT_CLASSIFIER}"', f'name: "{kind}"')


def plain(config: str, threads: int) -> str:
    """The config without batching, with one instance of so many threads."""
    text = re.sub(r"dynamic_batching \{.*?\n\}\n", "", config, flags=re.DOTALL).replace("count: 2", "count: 1")
    return re.sub(r'(key: "threads" value \{ string_value: ")\d+', rf"\g<1>{threads}", text)


def _write(repository: Path, kind: str, config: str) -> None:
    (repository / kind / "1").mkdir(parents=True)
    (repository / kind / "config.pbtxt").write_text(config)
    shutil.copy(repository / TEXT_CLASSIFIER / "1" / "model.py", repository / kind / "1")


def _make_int8(repository: Path, built: Path) -> None:
    """built/int8, and the model of that kind reads it."""
    shutil.copytree(built / CLASSIFIER, built / "int8")
    quantise(text_manifest.load(built / "int8"), "model.int8.onnx").save()
    model = repository / "int8" / "1" / "model.py"
    model.write_text(model.read_text().replace("text_manifest.CLASSIFIER", '"int8"'))


def quantise(given: TextManifest, name: str) -> TextManifest:
    """Writes the model `name` beside the given one, its multiplications in int8; reduced range as AVX2 needs it."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # its advice to prepare the model, which changes nothing here
    kind, range_of_avx2 = QuantType.QInt8, {"per_channel": True, "reduce_range": True}
    quantize_dynamic(
        given.model_path, given.folder / name, weight_type=kind, op_types_to_quantize=["MatMul"], **range_of_avx2
    )
    return replace(given, model=name)


def accuracies(built: Path) -> dict[str, Any]:
    """What int8 costs: held-out accuracy of both, and how near its embeddings are."""
    held_out = examples.load(examples.HELD_OUT, LABELS)
    found = {kind: build.embed(text_manifest.load(built / kind), held_out.texts) for kind in (CLASSIFIER, "int8")}
    judged = {kind: evaluation.judge(LABELS, np.array(held_out.classes), found[kind]["logits"], 0) for kind in found}
    cosines = (found[CLASSIFIER]["embedding"] * found["int8"]["embedding"]).sum(axis=1)
    return {
        "accuracy_fp32": judged[CLASSIFIER].accuracy,
        "accuracy_int8": judged["int8"].accuracy,
        "int8_cosine_min": float(cosines.min()),
        "int8_cosine_mean": float(cosines.mean()),
    }
