"""Texts are written for Triton as pb_utils writes them, and types told as it tells them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.arrays import quick_lookup, quick_serializer
from bls.paths import ROOT
from scripts.host.checkout import Checkout


@pytest.fixture(scope="module")
def pb_utils():
    file = Checkout(ROOT).backends / "python" / "triton_python_backend_utils.py"
    spec = importlib.util.spec_from_file_location("pb_utils_as_installed", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def theirs(pb_utils):
    return pb_utils.serialize_byte_tensor


texts = st.one_of(st.binary(max_size=300), st.text(max_size=50))


@given(st.lists(texts, max_size=3), st.booleans())
def test_a_text_is_written_as_pb_utils_writes_it(theirs, values, is_flat):
    array = np.empty((len(values),) if is_flat else (1, len(values)), dtype=np.object_)
    array.flat[:] = values
    assert quick_serializer(theirs)(array) == theirs(array)


def test_one_that_writes_another_way_stays_as_it_is():
    def other(array):
        return np.frombuffer(array.item(), dtype=np.uint8).tobytes()

    assert quick_serializer(other) is other


def test_types_are_told_as_pb_utils_tells_them_and_it_is_asked_once(pb_utils):
    asked = []

    def to_triton(dtype):
        asked.append(dtype)
        return pb_utils.numpy_to_triton_type(dtype)

    quick = quick_lookup(to_triton)
    dtypes = [np.dtype(name) for name in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "O")]
    for _ in range(3):
        assert [quick(dtype) for dtype in dtypes] == list(range(1, 14))
        assert quick(np.dtype(">i4")) is pb_utils.numpy_to_triton_type(np.dtype(">i4"))
    assert asked == [*dtypes, np.dtype(">i4")]
    from_triton = quick_lookup(pb_utils.triton_to_numpy_type)
    assert [np.dtype(from_triton(number)) for number in range(1, 14)] == dtypes
