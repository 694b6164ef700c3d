"""engines/triton/batch_answer.py: rows that end one by one, and the one response that is made of them."""

import numpy as np
import pytest

from bls.errors import BadRequest, EngineFailed
from engines.triton.batch_answer import BatchAnswer, Held, in_both_names, stacked
from engines.triton.tensors import EngineRequest
from engines.worker.generation import Generation
from tests.fake_pipeline import RememberingSender

REQUESTED = frozenset({"output_ids", "sequence_length"})


def answer(rows=2, pad_ids=None, sender=None):
    request = EngineRequest(Generation((1,), 4, frozenset({2})), False, True)
    return BatchAnswer([request] * rows, pad_ids or [0] * rows, sender or RememberingSender())


def row_end(*ids):
    return {"output_ids": np.array([[ids]], np.int32), "sequence_length": np.array([[len(ids)]], np.int32)}


def test_the_request_is_answered_once_when_its_last_row_ends():
    sender = RememberingSender()
    first, second = answer(sender=sender, pad_ids=[0, 9]).submissions(REQUESTED)
    second.sender.finish(row_end(7))
    assert sender.ends == 0
    first.sender.finish(row_end(4, 5, 6))
    assert sender.ends == 1
    (tensors,) = sender.responses
    assert tensors["output_ids"].tolist() == [[[4, 5, 6]], [[7, 9, 9]]]
    assert tensors["sequence_length"].tolist() == [[3], [1]]


def test_a_row_without_ids_is_all_padding():
    sender = RememberingSender()
    first, second = answer(sender=sender, pad_ids=[3, 3]).submissions(REQUESTED)
    first.sender.finish(row_end())
    second.sender.finish(row_end(8))
    assert sender.responses[0]["output_ids"].tolist() == [[[3]], [[8]]]
    assert sender.responses[0]["sequence_length"].tolist() == [[0], [1]]


def test_the_first_error_fails_the_request_and_stops_its_other_rows():
    sender = RememberingSender()
    first, second = answer(sender=sender).submissions(REQUESTED)
    assert not first.sender.is_cancelled()
    second.sender.finish(error=BadRequest("refused"))
    assert (sender.ends, str(sender.error)) == (1, "[BAD_REQUEST] row 1: refused")
    assert first.sender.is_cancelled()
    first.sender.finish(error=EngineFailed("dropped"))
    assert sender.ends == 1


def test_the_error_of_a_single_row_names_no_row():
    sender = RememberingSender()
    (only,) = answer(rows=1, sender=sender).submissions(REQUESTED)
    only.sender.finish(error=EngineFailed("broke"))
    assert str(sender.error) == "[INTERNAL] broke"


def test_a_client_that_left_is_asked_after_by_every_row():
    sender = RememberingSender()
    sender.left = True
    assert all(each.sender.is_cancelled() for each in answer(sender=sender).submissions(REQUESTED))


def test_a_held_answer_leaves_when_it_is_released():
    sender = RememberingSender()
    held = Held(sender)
    held.finish(row_end(1))
    held.wait()
    assert sender.ends == 0
    held.release()
    assert sender.responses[0]["sequence_length"].tolist() == [[1]]


def test_a_held_error_leaves_as_an_error():
    sender = RememberingSender()
    held = Held(sender)
    held.finish(error=BadRequest("no"))
    held.release()
    assert (sender.ends, str(sender.error)) == (1, "[BAD_REQUEST] no")


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_stacked_rows_keep_their_type(dtype):
    rows = [np.ones((1, 1, 2), dtype), np.ones((1, 1, 3), dtype)]
    result = stacked(rows, [0, 0])
    assert result.dtype == dtype
    assert result.tolist() == [[[1, 1, 0]], [[1, 1, 1]]]


def test_a_refusal_has_the_ensembles_name_behind_the_engines():
    error = in_both_names(BadRequest("9 prompt tokens + request_output_len 30 = 39; runtime_top_k is -1; seed is 5"))
    assert error.reason == (
        "9 prompt tokens + request_output_len (max_tokens) 30 = 39; runtime_top_k (top_k) is -1; seed is 5"
    )
