"""An engine's tensors as Triton's gRPC messages, and back: values go through as they are."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from bls import kserve
from bls.arrays import Array, Tensors
from bls.contract import Contract

_TYPES: dict[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64,
    "FP16": np.float16, "FP32": np.float32,
}  # fmt: skip
_FINAL = "triton_final_response"
_EMPTY_FINAL = "triton_enable_empty_final_response"  # else gRPC leaves out an end that holds no tensor


def request(model: str, request_id: str, contract: Contract, tensors: Tensors, outputs: Iterable[str]) -> Any:
    """A ModelInferRequest. A tensor that Triton hands a model as [B] (`scalar`) goes as [B,1], as clients send it."""
    message = kserve.ModelInferRequest(model_name=model, id=request_id)
    declared = {tensor.name: tensor for tensor in contract.inputs}
    for name, array in tensors.items():
        datatype = declared[name].datatype.removeprefix("TYPE_").replace("STRING", "BYTES")
        shape = (*array.shape, 1) if declared[name].scalar and array.ndim == 1 else array.shape
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        content = _texts(array) if datatype == "BYTES" else np.ascontiguousarray(array, _TYPES[datatype]).tobytes()
        message.raw_input_contents.append(content)
    for name in sorted(outputs):
        message.outputs.add(name=name)
    return message


def streamed(message: Any) -> Any:
    """The same request for a stream: its end comes even if it holds nothing."""
    message.parameters[_EMPTY_FINAL].bool_param = True
    return message


def is_final(response: Any) -> bool:
    """Whether nothing follows a stream's ModelInferResponse."""
    return bool(response.parameters[_FINAL].bool_param)


def tensors(response: Any) -> dict[str, Array]:
    """The outputs of a ModelInferResponse by name."""
    contents = zip(response.outputs, response.raw_output_contents, strict=True)
    return {output.name: _array(output, content) for output, content in contents}


def _array(output: Any, content: bytes) -> Array:
    if output.datatype == "BYTES":
        return np.array(list(_read_texts(content)), dtype=np.object_).reshape(tuple(output.shape))
    return np.frombuffer(content, _TYPES[output.datatype]).reshape(tuple(output.shape))


def _texts(array: Array) -> bytes:
    values = [value if isinstance(value, bytes) else str(value).encode() for value in array.reshape(-1)]
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def _read_texts(content: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(content):
        (length,) = struct.unpack_from("<I", content, at)
        yield content[at + 4 : at + 4 + length]
        at += 4 + length
