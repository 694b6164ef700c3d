"""A tensor that is sent again is the one that was sent before, with the same content whatever became of the array."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from bls import kept_tensors
from bls.arrays import boolean, int32, text
from bls.kept_tensors import KeptTensors


class Made:
    """Stands in for pb_utils.Tensor, which goes on looking at the array."""

    def __init__(self, name, array):
        self.name, self.array = name, array

    @property
    def content(self):
        return self.name, self.array.dtype, self.array.shape, self.array.tolist()


@pytest.fixture
def kept():
    return []


@pytest.fixture
def tensors(kept):
    return KeptTensors(Made, lambda tensor: kept.append(tensor) or tensor)


def test_a_number_is_made_once_for_each_name_type_shape_and_value(tensors, kept):
    given = [
        ("a", int32(1)),
        ("b", int32(1)),
        ("a", int32(2)),
        ("a", np.array([1], np.int32)),
        ("a", boolean(True)),
        ("a", np.array([[1]], np.int64)),
    ]
    first = [tensors.of(*each) for each in given]
    assert [tensors.of(*each) for each in given] == first == kept
    assert [tensor.content for tensor in first] == [Made(*each).content for each in given]


def test_an_array_that_is_filled_anew_leaves_what_was_made_of_it_as_it_was(tensors):
    array = int32(3)
    three = tensors.of("tokens", array)
    array[0, 0] = 4
    assert (three.array.item(), tensors.of("tokens", array).array.item()) == (3, 4)
    assert tensors.of("tokens", int32(3)) is three


@pytest.mark.parametrize("array", [np.array([[1, 2]], np.int32), text("a"), np.array([[0.5]], np.float32)])
def test_all_else_is_made_each_time(tensors, kept, array):
    assert tensors.of("a", array) is not tensors.of("a", array)
    assert kept == []


def test_another_thread_gets_tensors_of_its_own(tensors, kept):
    first = tensors.of("a", int32(1))
    theirs = []
    thread = threading.Thread(target=lambda: theirs.extend(tensors.of("a", int32(1)) for _ in range(2)))
    thread.start()
    thread.join()
    assert len({id(each) for each in (first, *theirs)}) == 3
    assert kept == [first] and tensors.of("a", int32(1)) is first


def test_no_more_are_kept_than_there_is_room_for(tensors, kept, monkeypatch):
    monkeypatch.setattr(kept_tensors, "MOST", 3)
    for _ in range(2):
        assert [tensors.of("a", int32(number)).array.item() for number in range(5)] == [*range(5)]
    assert [tensor.array.item() for tensor in kept] == [0, 1, 2]
