"""Python values as a request's tensors of batch 1, by the contract of the model, and the way back."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tritonclient.grpc as grpc

from bls.contract import contract_of
from scripts.client.failure import RequestFailed

_NUMPY = {
    "TYPE_BOOL": np.bool_, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64, "TYPE_UINT8": np.uint8,
    "TYPE_UINT64": np.uint64, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32, "TYPE_STRING": np.object_,
}  # fmt: skip
_TAKEN = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}  # numpy's kinds: what a tensor of the first takes
_PYTHON = {bool: "TYPE_BOOL", int: "TYPE_INT32", float: "TYPE_FP32"}
_TRITON = {np.dtype(kind): name.removeprefix("TYPE_") for name, kind in _NUMPY.items()} | {np.dtype("O"): "BYTES"}


def inputs(model: str, values: Mapping[str, Any]) -> list[Any]:
    """Arrays go as they are; a value or a list of values becomes [1,n] of the type that the contract says.

    A model without one gets INT32, FP32, BOOL and STRING. Raises RequestFailed for a name or a value that the contract
    does not know.
    """
    return [_input(name, _array(model, name, value)) for name, value in values.items()]


def outputs(result: Any) -> dict[str, Any]:
    """The arrays of a response by name, strings as bytes, batch dimension kept."""
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def _array(model: str, name: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    datatype = _datatype(model, name, value)
    values = value if isinstance(value, list | tuple) else [value]
    if datatype == "TYPE_STRING":
        if not all(isinstance(each, str) for each in values):
            raise RequestFailed("INVALID_ARGUMENT", f"{name} is {value!r}; it must be text or a list of texts")
        return np.array([[each.encode() for each in values]], dtype=np.object_)
    kind: np.dtype[Any] = np.dtype(_NUMPY[datatype])
    found = np.array([values])
    fits = found.dtype.kind in _TAKEN[kind.kind] and found.ndim == 2
    if fits and kind.kind in "iu" and found.size:
        fits = np.iinfo(kind).min <= found.min() and found.max() <= np.iinfo(kind).max
    if not fits:
        what = datatype.removeprefix("TYPE_")
        raise RequestFailed("INVALID_ARGUMENT", f"{name} is {value!r}; it must be of type {what}")
    return found.astype(kind)


def _datatype(model: str, name: str, value: Any) -> str:
    contract = contract_of(model)
    if contract is None:
        first = value[0] if isinstance(value, list | tuple) and value else value
        return _PYTHON.get(type(first), "TYPE_STRING")
    known = {tensor.name: tensor.datatype for tensor in contract.inputs}
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RequestFailed("INVALID_ARGUMENT", f"{name} is not an input of {model}{hint}")
    return known[name]


def _input(name: str, array: np.ndarray[Any, Any]) -> Any:
    tensor = grpc.InferInput(name, list(array.shape), _TRITON[array.dtype])
    tensor.set_data_from_numpy(array)
    return tensor
