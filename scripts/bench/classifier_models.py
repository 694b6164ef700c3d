"""The kinds of the text classifier that scripts.bench classifier compares, as a model repository."""

from __future__ import annotations

import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bls import manifest
from bls.contract import TEXT_CLASSIFIER, TEXT_PIPELINE, TEXT_TOKENIZER
from bls.paths import ROOT
from engines.classifier import blocks, build, examples, nodes
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
    for kind in ("fp32", "int8"):
        _write(repository, kind, _config(repository, kind))
    _make_others(repository, folder / "engines" / "built")
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


def _make_others(repository: Path, built: Path) -> None:
    """built/fp32 and built/int8, and the models of those kinds read them."""
    shutil.copytree(built / CLASSIFIER, built / "fp32")
    dequantise(text_manifest.load(built / "fp32"))
    shutil.copytree(built / "fp32", built / "int8")
    quantise(text_manifest.load(built / "int8"), "model.int8.onnx").save()
    for kind in ("fp32", "int8"):
        model = repository / kind / "1" / "model.py"
        model.write_text(model.read_text().replace("text_manifest.CLASSIFIER", f'"{kind}"'))


def dequantise(given: TextManifest) -> None:
    """Writes the model anew with its multiplications in float32, where they are in blocks of four bits."""
    model = onnx.load(given.model_path)
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == nodes.MULTIPLY:
            packed, scales = (onnx.numpy_helper.to_array(constants[name]) for name in node.input[1:3])
            rows = len(packed)
            exact = blocks.Blocks(packed.reshape(rows, -1), scales.reshape(rows, -1)).exact()
            constants[node.input[1]].CopyFrom(onnx.numpy_helper.from_array(exact.T.copy(), node.input[1]))
            node.op_type, node.domain = "MatMul", ""
            model.graph.initializer.remove(constants[node.input[2]])
            del node.input[2], node.attribute[:]
    weights = given.folder / build.WEIGHTS
    weights.unlink()
    onnx.save(model, given.model_path, save_as_external_data=True, location=build.WEIGHTS, size_threshold=256)


def quantise(given: TextManifest, name: str) -> TextManifest:
    """Writes the model `name` beside the given one, its multiplications in int8; reduced range as AVX2 needs it."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # its advice to prepare the model, which changes nothing here
    kind, range_of_avx2 = QuantType.QInt8, {"per_channel": True, "reduce_range": True}
    untyped = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of what ONNX Runtime's own operators give
    quantize_dynamic(
        given.model_path,
        given.folder / name,
        weight_type=kind,
        op_types_to_quantize=["MatMul"],
        extra_options=untyped,
        **range_of_avx2,
    )
    return replace(given, model=name)


def accuracies(built: Path) -> dict[str, Any]:
    """What each kind of weights costs: held-out accuracy, and how near its embeddings are to float32's."""
    held_out = examples.load(examples.HELD_OUT, LABELS)
    kinds = {"int4": CLASSIFIER, "fp32": "fp32", "int8": "int8"}
    found = {
        kind: build.embed(text_manifest.load(built / folder), held_out.texts[::2]) for kind, folder in kinds.items()
    }
    right = np.array(held_out.classes[::2])
    accuracy = {f"accuracy_{kind}": float((each["logits"].argmax(1) == right).mean()) for kind, each in found.items()}
    for kind in ("int4", "int8"):
        cosines = (found["fp32"]["embedding"] * found[kind]["embedding"]).sum(axis=1)
        accuracy[f"{kind}_cosine_min"] = float(cosines.min())
    return accuracy
