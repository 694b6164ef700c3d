"""Texts are written for Triton as pb_utils writes them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.arrays import quick_serializer
from bls.paths import ROOT
from scripts.host.checkout import Checkout


@pytest.fixture(scope="module")
def theirs():
    file = Checkout(ROOT).backends / "python" / "triton_python_backend_utils.py"
    spec = importlib.util.spec_from_file_location("pb_utils_as_installed", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serialize_byte_tensor


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
