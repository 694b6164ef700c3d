"""Arrays of shape [1,1] and [1,n], as a request of batch 1 carries them, and texts as NVIDIA's models send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bls.errors import BadRequest

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]  # by tensor name


def int32(value: int) -> Array:
    return np.array([[value]], dtype=np.int32)


def boolean(value: bool) -> Array:
    return np.array([[value]], dtype=np.bool_)


def strings(*values: str) -> Array:
    """UTF-8 bytes in an object array, as Triton's STRING tensors are."""
    return np.array([[value.encode() for value in values]], dtype=np.object_)


def text(value: str) -> Array:
    """Shape [1]: so NVIDIA's postprocessing answers a request of one row and one beam, and its clients read [0]."""
    return np.array([value.encode()], dtype=np.object_)


def read_text(value: Any, name: str) -> str:
    """An element of the string tensor `name`. Raises BadRequest if it isn't UTF-8."""
    if isinstance(value, str):
        return value
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name} is not valid UTF-8 (byte {error.start})") from None
