"""BERT's encoder and a linear head as an ONNX graph, made of the weights without the framework that trained them.

    input_ids, attention_mask  int64 [batch, sequence]
    embedding                  float [batch, width]             mean over the tokens, brought to length 1
    logits                     float [batch, classes]
    labels, scores             string, float [batch, classes]   the classes and their probabilities, best first

A sequence longer than the encoder's `max_tokens` is windows of that size, one after the other, each a text of its own.
Where a window is more likely a risk than not, the worst one gives the logits; else they are the mean of all windows.

Operators of ONNX's opset 17 alone, so that any runtime of the last years reads it; weights in blocks of four bits need
two of ONNX Runtime's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from bls.arrays import Array
from engines.classifier import blocks
from engines.classifier.blocks import Blocks
from engines.classifier.labels import RISKS
from engines.classifier.nodes import LOOK_UP, Encoder, Graph, tensor

_MASKED = -1e9  # added to the attention of what is padding


@dataclass(frozen=True)
class Head:
    """logits = embedding @ weight + bias; `weight` is [width, classes]."""

    weight: Array
    bias: Array
    labels: tuple[str, ...]


def build(encoder: Encoder, head: Head) -> onnx.ModelProto:
    """Raises KeyError with the name of a weight that is missing."""
    graph = Graph(encoder)
    ids, mask = _windows(graph)
    absent = graph.add("Mul", graph.add("Sub", graph.constant(1.0), mask), graph.constant(_MASKED))
    absent = graph.add("Unsqueeze", absent, graph.constant([1, 2]))  # [windows, 1, 1, tokens]
    hidden = _embed(graph, ids)
    for number in range(encoder.layers):
        hidden = _layer(graph, f"encoder.layer.{number}", hidden, absent)
    _classify(graph, head, *_pool(graph, hidden, mask))
    return graph.model(encoder.width, len(head.labels))


def _windows(graph: Graph) -> tuple[str, str]:
    """Ids and mask as [windows, tokens]; the mask as float, 0 in what fills the last window up."""
    length = graph.add("Shape", "input_ids", start=1, end=2)
    size = graph.add("Min", length, graph.constant([graph.encoder.max_tokens]))
    missing = graph.add("Mod", graph.add("Sub", size, graph.add("Mod", length, size)), size)
    pads = graph.add("Concat", graph.constant([0, 0, 0]), missing, axis=0)
    shape = graph.add("Concat", graph.constant([-1]), size, axis=0)
    ids, mask = (
        graph.add("Reshape", graph.add("Pad", name, pads, graph.constant(0)), shape)
        for name in ("input_ids", "attention_mask")
    )
    return ids, graph.add("Cast", mask, to=TensorProto.FLOAT)


def _embed(graph: Graph, ids: str) -> str:
    """Words by their ids, positions by their order, and one type of segment for all."""
    table = graph.weight("embeddings.position_embeddings.weight")[: graph.encoder.max_tokens]
    places = graph.constant(table + graph.weight("embeddings.token_type_embeddings.weight")[0])
    length = graph.add("Shape", ids, start=1, end=2)
    near = graph.add("Slice", places, graph.constant([0]), length, graph.constant([0]))
    return graph.normalised(graph.add("Add", _words(graph, ids), near), "embeddings.LayerNorm")


def _words(graph: Graph, ids: str) -> str:
    table = graph.encoder.weights["embeddings.word_embeddings.weight"]
    if not isinstance(table, Blocks):
        return graph.add("Gather", graph.constant(table), ids)
    sizes: dict[str, Any] = {"gather_axis": 0, "quantize_axis": 1, "bits": blocks.BITS, "block_size": blocks.SIZE}
    return graph.add(LOOK_UP, graph.constant(table.packed), ids, graph.constant(table.scales), **sizes)


def _layer(graph: Graph, name: str, hidden: str, absent: str) -> str:
    attended = graph.named_linear(
        _attend(graph, f"{name}.attention.self", hidden, absent), f"{name}.attention.output.dense"
    )
    hidden = graph.normalised(graph.add("Add", attended, hidden), f"{name}.attention.output.LayerNorm")
    inner = _gelu(graph, graph.named_linear(hidden, f"{name}.intermediate.dense"))
    inner = graph.named_linear(inner, f"{name}.output.dense")
    return graph.normalised(graph.add("Add", inner, hidden), f"{name}.output.LayerNorm")


def _attend(graph: Graph, name: str, hidden: str, absent: str) -> str:
    """Attention of all heads at once; queries, keys and values come of one multiplication."""
    heads, size = graph.encoder.heads, graph.encoder.width // graph.encoder.heads
    # The division of the scores, done once in the weights.
    scales = {"query": 1 / math.sqrt(size), "key": 1.0, "value": 1.0}
    weight = _joined([(graph.encoder.weights[f"{name}.{part}.weight"], scale) for part, scale in scales.items()])
    bias = np.concatenate([graph.weight(f"{name}.{part}.bias") * scale for part, scale in scales.items()])
    graph.add("Split", graph.linear(hidden, weight, bias), outputs=[f"{name}.{part}" for part in scales], axis=-1)
    by_head = graph.constant([0, 0, heads, size])
    turned = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    query, key, value = (
        graph.add("Transpose", graph.add("Reshape", f"{name}.{part}", by_head), perm=perm)
        for part, perm in turned.items()
    )
    scores = graph.add("Add", graph.add("MatMul", query, key), absent)
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    mixed = graph.add("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.add("Reshape", mixed, graph.constant([0, 0, heads * size]))


def _joined(parts: Sequence[tuple[Array | Blocks, float]]) -> Array | Blocks:
    """One matrix of the rows of all, each part times its factor; in blocks if all parts are."""
    scaled = [part.scaled(factor) for part, factor in parts if isinstance(part, Blocks)]
    if scaled:
        return blocks.joined(scaled)
    rows: Array = np.concatenate([part * factor for part, factor in parts if not isinstance(part, Blocks)])
    return rows


def _gelu(graph: Graph, given: str) -> str:
    """The exact one, spelt as runtimes recognise it."""
    error = graph.add("Erf", graph.add("Div", given, graph.constant(math.sqrt(2))))
    doubled = graph.add("Mul", given, graph.add("Add", error, graph.constant(1.0)))
    return graph.add("Mul", doubled, graph.constant(0.5))


def _pool(graph: Graph, hidden: str, mask: str) -> tuple[str, str]:
    """The sum over each window's tokens [windows, width], and how many those are [windows, 1]."""
    weights = graph.add("Unsqueeze", mask, graph.constant([2]))
    total = graph.add("ReduceSum", graph.add("Mul", hidden, weights), graph.constant([1]), keepdims=0)
    return total, graph.add("ReduceSum", weights, graph.constant([1]), keepdims=0)


def _classify(graph: Graph, head: Head, total: str, count: str) -> None:
    """The windows of a text together: what is said of the whole."""
    weight, bias, labels, risks = (graph.constant(value, name) for name, value in _named(head).items())
    logits = graph.add("Add", graph.add("MatMul", _unit(graph, total), weight), bias)
    is_there = graph.add("Min", count, graph.constant(1.0))
    risk = graph.add("Mul", graph.add("MatMul", graph.add("Softmax", logits, axis=-1), risks), is_there)
    classes, width = len(head.labels), graph.encoder.width
    risk, is_there = (_by_text(graph, given, 1) for given in (risk, is_there))
    worst = graph.add("ReduceMax", risk, axes=[1], keepdims=1)
    is_worst = graph.add("Mul", graph.add("Cast", graph.add("Equal", risk, worst), to=TensorProto.FLOAT), is_there)
    is_risk = graph.add("Greater", worst, graph.constant(0.5))
    counts = graph.add("Where", is_risk, is_worst, is_there)
    summed = _summed(graph, graph.add("Mul", _by_text(graph, logits, classes), counts))
    graph.add("Div", summed, _summed(graph, counts), outputs=["logits"])
    _unit(graph, _summed(graph, _by_text(graph, total, width)), outputs=["embedding"])
    shares = graph.add("Softmax", "logits", axis=-1)
    graph.add("TopK", shares, graph.constant([classes]), outputs=["scores", "order"], axis=-1)
    graph.add("Gather", labels, "order", outputs=["labels"], axis=0)


def _unit(graph: Graph, given: str, outputs: Sequence[str] = ()) -> str:
    """Each row brought to length 1."""
    length = graph.add("Max", graph.add("ReduceL2", given, axes=[1], keepdims=1), graph.constant(1e-12))
    return graph.add("Div", given, length, outputs=outputs)


def _by_text(graph: Graph, given: str, size: int) -> str:
    """[windows, size] as [batch, windows of a text, size]."""
    batch = graph.add("Shape", "input_ids", start=0, end=1)
    return graph.add("Reshape", given, graph.add("Concat", batch, graph.constant([-1, size]), axis=0))


def _summed(graph: Graph, given: str) -> str:
    return graph.add("ReduceSum", given, graph.constant([1]), keepdims=0)


def _named(head: Head) -> dict[str, Any]:
    risks = [[float(label in RISKS)] for label in head.labels]
    return {"head.weight": head.weight, "head.bias": head.bias, "head.labels": list(head.labels), "head.risks": risks}


def set_head(model: onnx.ModelProto, head: Head) -> None:
    """Puts another head of the same size into a model that `build` has made."""
    constants = {constant.name: constant for constant in model.graph.initializer}
    for name, value in _named(head).items():
        constants[name].CopyFrom(tensor(value, name))
