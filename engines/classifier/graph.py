"""BERT's encoder and a linear head as an ONNX graph, made of the weights without the framework that trained them.

    input_ids, attention_mask  int64 [batch, sequence]
    embedding                  float [batch, width]             mean over the tokens, brought to length 1
    logits                     float [batch, classes]
    labels, scores             string, float [batch, classes]   the classes and their probabilities, best first

Operators of ONNX's opset 17 alone, so that any runtime of the last years reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bls.arrays import Array

OPSET, IR_VERSION = 17, 8
_MASKED = -1e9  # added to the attention of what is padding


@dataclass(frozen=True)
class Encoder:
    """The weights by the names of Hugging Face's BertModel, and what they alone don't tell."""

    weights: Mapping[str, Array]
    layers: int
    heads: int
    layer_norm_epsilon: float
    max_tokens: int

    @property
    def width(self) -> int:
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])


@dataclass(frozen=True)
class Head:
    """logits = embedding @ weight + bias; `weight` is [width, classes]."""

    weight: Array
    bias: Array
    labels: tuple[str, ...]


def build(encoder: Encoder, head: Head) -> onnx.ModelProto:
    """Raises KeyError with the name of a weight that is missing."""
    graph = _Graph(encoder)
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    absent = graph.add("Mul", graph.add("Sub", graph.constant(1.0), mask), graph.constant(_MASKED))
    absent = graph.add("Unsqueeze", absent, graph.constant([1, 2]))  # [batch, 1, 1, sequence]
    hidden = _embed(graph)
    for number in range(encoder.layers):
        hidden = _layer(graph, f"encoder.layer.{number}", hidden, absent)
    _pool(graph, hidden, mask)
    _classify(graph, head)
    return graph.model(encoder.width, len(head.labels))


class _Graph:
    """Nodes and constants in the order in which they are made."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """The name of the node's first output."""
        names = list(outputs) or [f"{operator.lower()}_{len(self._nodes)}"]
        self._nodes.append(helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names[0]

    def constant(self, value: Any, name: str = "") -> str:
        name = name or f"constant_{len(self._constants)}"
        self._constants.append(_constant(value, name))
        return name

    def weight(self, name: str) -> Array:
        return self.encoder.weights[name]

    def linear(self, given: str, weight: Array, bias: Array) -> str:
        """A torch Linear, whose weight is [out, in]."""
        return self.add("Add", self.add("MatMul", given, self.constant(weight.T)), self.constant(bias))

    def named_linear(self, given: str, name: str) -> str:
        return self.linear(given, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def normalised(self, given: str, name: str) -> str:
        scale, shift = (self.constant(self.weight(f"{name}.{part}")) for part in ("weight", "bias"))
        epsilon = self.encoder.layer_norm_epsilon
        return self.add("LayerNormalization", given, scale, shift, axis=-1, epsilon=epsilon)

    def model(self, width: int, classes: int) -> onnx.ModelProto:
        inputs = [_value(name, TensorProto.INT64, "sequence") for name in ("input_ids", "attention_mask")]
        outputs = [
            _value("logits", TensorProto.FLOAT, classes),
            _value("embedding", TensorProto.FLOAT, width),
            _value("labels", TensorProto.STRING, classes),
            _value("scores", TensorProto.FLOAT, classes),
        ]
        graph = helper.make_graph(self._nodes, "text_classifier", inputs, outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="engines.classifier")


def _constant(value: Any, name: str) -> onnx.TensorProto:
    """Python's and numpy's floats as float32, integers as int64, texts as strings."""
    array = np.asarray(value)
    array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, np.object_))
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _value(name: str, kind: int, size: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["batch", size])


def _embed(graph: _Graph) -> str:
    """Words by their ids, positions by their order, and one type of segment for all."""
    words = graph.add("Gather", graph.constant(graph.weight("embeddings.word_embeddings.weight")), "input_ids")
    table = graph.weight("embeddings.position_embeddings.weight")[: graph.encoder.max_tokens]
    places = graph.constant(table + graph.weight("embeddings.token_type_embeddings.weight")[0])
    length = graph.add("Shape", "input_ids", start=1, end=2)
    near = graph.add("Slice", places, graph.constant([0]), length, graph.constant([0]))
    return graph.normalised(graph.add("Add", words, near), "embeddings.LayerNorm")


def _layer(graph: _Graph, name: str, hidden: str, absent: str) -> str:
    attended = graph.named_linear(
        _attend(graph, f"{name}.attention.self", hidden, absent), f"{name}.attention.output.dense"
    )
    hidden = graph.normalised(graph.add("Add", attended, hidden), f"{name}.attention.output.LayerNorm")
    inner = _gelu(graph, graph.named_linear(hidden, f"{name}.intermediate.dense"))
    inner = graph.named_linear(inner, f"{name}.output.dense")
    return graph.normalised(graph.add("Add", inner, hidden), f"{name}.output.LayerNorm")


def _attend(graph: _Graph, name: str, hidden: str, absent: str) -> str:
    """Attention of all heads at once; queries, keys and values come of one multiplication."""
    heads, size = graph.encoder.heads, graph.encoder.width // graph.encoder.heads
    # The division of the scores, done once in the weights.
    scales = {"query": 1 / math.sqrt(size), "key": 1.0, "value": 1.0}
    weight = np.concatenate([graph.weight(f"{name}.{part}.weight") * scale for part, scale in scales.items()])
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


def _gelu(graph: _Graph, given: str) -> str:
    """The exact one, spelt as runtimes recognise it."""
    error = graph.add("Erf", graph.add("Div", given, graph.constant(math.sqrt(2))))
    doubled = graph.add("Mul", given, graph.add("Add", error, graph.constant(1.0)))
    return graph.add("Mul", doubled, graph.constant(0.5))


def _pool(graph: _Graph, hidden: str, mask: str) -> None:
    weights = graph.add("Unsqueeze", mask, graph.constant([2]))
    total = graph.add("ReduceSum", graph.add("Mul", hidden, weights), graph.constant([1]), keepdims=0)
    count = graph.add("Max", graph.add("ReduceSum", weights, graph.constant([1]), keepdims=0), graph.constant(1e-9))
    mean = graph.add("Div", total, count)
    length = graph.add("Max", graph.add("ReduceL2", mean, axes=[1], keepdims=1), graph.constant(1e-12))
    graph.add("Div", mean, length, outputs=["embedding"])


def _classify(graph: _Graph, head: Head) -> None:
    weight, bias, labels = (graph.constant(value, name) for name, value in _named(head).items())
    graph.add("Add", graph.add("MatMul", "embedding", weight), bias, outputs=["logits"])
    shares = graph.add("Softmax", "logits", axis=-1)
    graph.add("TopK", shares, graph.constant([len(head.labels)]), outputs=["scores", "order"], axis=-1)
    graph.add("Gather", labels, "order", outputs=["labels"], axis=0)


def _named(head: Head) -> dict[str, Any]:
    return {"head.weight": head.weight, "head.bias": head.bias, "head.labels": list(head.labels)}


def set_head(model: onnx.ModelProto, head: Head) -> None:
    """Puts another head of the same size into a model that `build` has made."""
    constants = {constant.name: constant for constant in model.graph.initializer}
    for name, value in _named(head).items():
        constants[name].CopyFrom(_constant(value, name))
