"""What an encoder's graph is made of: its weights, and nodes and constants in the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bls.arrays import Array
from engines.classifier import blocks
from engines.classifier.blocks import Blocks

OPSET, IR_VERSION = 17, 8
ORT, ORT_OPSET = "com.microsoft", 1
MULTIPLY, LOOK_UP = "MatMulNBits", "GatherBlockQuantized"
_INT8 = 4  # accuracy_level of MatMulNBits: activations are rounded to eight bits too, twice as fast on short texts


@dataclass(frozen=True)
class Encoder:
    """The weights by the names of Hugging Face's BertModel, and what they alone don't tell."""

    weights: Mapping[str, Array | Blocks]
    layers: int
    heads: int
    layer_norm_epsilon: float
    max_tokens: int

    @property
    def width(self) -> int:
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])


class Graph:
    """Nodes and constants in the order in which they are made."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """The name of the node's first output."""
        names = list(outputs) or [f"{operator.lower()}_{len(self._nodes)}"]
        domain = ORT if operator in (MULTIPLY, LOOK_UP) else ""
        self._nodes.append(helper.make_node(operator, inputs, names, name=names[0], domain=domain, **attributes))
        return names[0]

    def constant(self, value: Any, name: str = "") -> str:
        name = name or f"constant_{len(self._constants)}"
        self._constants.append(tensor(value, name))
        return name

    def weight(self, name: str) -> Array:
        """One that isn't in blocks."""
        found = self.encoder.weights[name]
        return found.exact() if isinstance(found, Blocks) else found

    def linear(self, given: str, weight: Array | Blocks, bias: Array) -> str:
        """A torch Linear, whose weight is [out, in]."""
        if not isinstance(weight, Blocks):
            return self.add("Add", self.add("MatMul", given, self.constant(weight.T)), self.constant(bias))
        rows, columns = weight.shape
        packed = self.constant(weight.packed.reshape(rows, -1, blocks.SIZE * blocks.BITS // 8))
        scales = self.constant(weight.scales.reshape(-1))
        sizes: dict[str, Any] = {
            "K": columns,
            "N": rows,
            "bits": blocks.BITS,
            "block_size": blocks.SIZE,
            "accuracy_level": _INT8,
        }
        return self.add("Add", self.add(MULTIPLY, given, packed, scales, **sizes), self.constant(bias))

    def named_linear(self, given: str, name: str) -> str:
        return self.linear(given, self.encoder.weights[f"{name}.weight"], self.weight(f"{name}.bias"))

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
        own = [helper.make_opsetid(ORT, ORT_OPSET)] if any(node.domain for node in self._nodes) else []
        opsets = [helper.make_opsetid("", OPSET), *own]
        return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets, producer_name="engines.classifier")


def tensor(value: Any, name: str) -> onnx.TensorProto:
    """Python's and numpy's floats as float32, integers as int64, bytes as uint8, texts as strings."""
    array = np.asarray(value)
    array = array.astype({"f": np.float32, "i": np.int64, "u": np.uint8}.get(array.dtype.kind, np.object_))
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _value(name: str, kind: int, size: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["batch", size])
