"""tensors.py and generation.py of engines/: what a request may hold, and the words for what it may not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls.contract import ENGINE
from bls.errors import BadRequest
from engines.triton import tensors
from engines.worker.generation import Limits
from tests.nvidia_bls import sent_by_the_bls

END_IDS = frozenset({2})
LIMITS = Limits(context_tokens=32, vocab_size=100, end_ids=END_IDS, cache_tokens=64, prompt_tokens=24)
DTYPES = {
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_UINT64": np.uint64,
    "TYPE_UINT8": np.uint8,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_BOOL": np.bool_,
    "TYPE_STRING": np.object_,
}
DATATYPES = {tensor.name: DTYPES[tensor.datatype] for tensor in ENGINE.inputs}


def arrays(**values):
    """Tensors as the model sees them: scalars without their [1], all else with the batch dimension."""
    given_values = {"input_ids": [[5, 6, 7]], "request_output_len": [4], **values}
    if "input_lengths" not in given_values:
        given_values["input_lengths"] = [np.array(given_values["input_ids"]).size]
    return {name: np.array(value, dtype=DATATYPES[name]) for name, value in given_values.items() if value is not None}


def read(**values):
    request = tensors.read(arrays(**values), END_IDS, exclude_input=True)
    LIMITS.check(request.generation)
    return request


def test_a_plain_request_takes_the_likeliest_token_each_time():
    generation = read().generation
    assert (generation.prompt, generation.max_tokens, generation.end_ids) == ((5, 6, 7), 4, END_IDS)
    assert generation.sampling.is_greedy


@pytest.mark.parametrize(
    ("values", "is_greedy"),
    [
        ({"temperature": [0.7]}, False),
        ({"runtime_top_k": [5]}, False),
        ({"runtime_top_p": [0.9]}, False),
        ({"temperature": [0.0]}, True),
        ({"temperature": [0.7], "runtime_top_k": [1]}, True),
        ({"temperature": [0.7], "runtime_top_p": [0.0]}, True),
        ({"repetition_penalty": [1.1], "seed": [3]}, True),
    ],
)
def test_sampling_begins_with_a_temperature_a_top_k_or_a_top_p(values, is_greedy):
    assert read(**values).generation.sampling.is_greedy == is_greedy


def test_without_a_seed_two_requests_differ():
    assert read(temperature=[1.0]).generation.sampling.seed != read(temperature=[1.0]).generation.sampling.seed


def test_a_seed_of_64_bits_is_kept():
    assert read(temperature=[1.0], seed=[2**64 - 1]).generation.sampling.seed == 2**64 - 1


@pytest.mark.parametrize(("end_id", "end_ids"), [(None, {2}), ([-1], {2}), ([9], {9})])
def test_the_clients_end_id_wins_and_minus_one_is_none(end_id, end_ids):
    assert read(end_id=end_id).generation.end_ids == end_ids


def test_flags_say_how_to_answer():
    request = read(streaming=[True], exclude_input_in_output=[False], return_log_probs=[True])
    assert (request.streaming, request.exclude_input, request.generation.log_probs) == (True, False, True)


@pytest.mark.parametrize("words", [[[5, 6, 9, 0], [2, 3, -1, -1]], [[[5, 6, 9, 0], [2, 3, -1, -1]]]])
def test_stop_words_come_flat_with_the_end_of_each(words):
    assert read(stop_words_list=words).generation.stop_words == ((5, 6), (9,))


@given(words=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=4), padding=st.integers(0, 3))
def test_stop_words_are_read_as_they_were_written(words, padding):
    ids = [token for word in words for token in word]
    ends = [sum(map(len, words[: index + 1])) for index in range(len(words))]
    width = len(ids) + padding
    packed = [ids + [0] * (width - len(ids)), ends + [-1] * (width - len(ends))]
    assert read(stop_words_list=np.array([packed]).reshape(1, 2, width)).generation.stop_words == tuple(
        map(tuple, words)
    )


def test_the_most_and_the_longest_stop_words_and_the_longest_guide_are_taken():
    many, long = [[[5] * 256, range(1, 257)]], [[[5] * 256, [256] + [-1] * 255]]
    assert len(read(stop_words_list=many).generation.stop_words) == 256
    assert len(read(stop_words_list=long).generation.stop_words[0]) == 256
    guide = {"guided_decoding_guide_type": [[b"regex"]], "guided_decoding_guide": [[b"a" * 16_384]]}
    assert len(read(**guide).generation.guide.text) == 16_384


@pytest.mark.parametrize(
    "values",
    [
        {"bad_words_list": np.zeros((1, 2, 0))},
        {"bad_words_list": [[[0], [-1]]]},
        {"stop_words_list": np.zeros((1, 2, 0))},
        {"embedding_bias": np.zeros((1, 0))},
        {"embedding_bias": np.zeros((1, 100))},
        {"len_penalty": [1.0], "early_stopping": [False], "beam_width": [1], "num_return_sequences": [1]},
        {"return_context_logits": [False], "return_generation_logits": [False], "return_perf_metrics": [False]},
        {"prompt_table_extra_ids": np.zeros((1, 0)), "decoder_input_ids": np.zeros((1, 0)), "pad_id": [0]},
        {"lora_config": np.zeros((1, 0, 3))},
    ],
)
def test_what_is_empty_or_neutral_counts_as_absent(values):
    assert read(seed=[1], **values).generation == read(seed=[1]).generation


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input_ids": None, "input_lengths": [1]}, "input_ids is empty; at least 1 token is needed"),
        ({"input_ids": [[]], "input_lengths": [0]}, "input_ids is empty; at least 1 token is needed"),
        ({"input_ids": [[5], [6]]}, "input_ids has shape [2, 1]; this engine takes one sequence per request"),
        ({"input_lengths": [2]}, "input_lengths is 2, but input_ids holds 3 ids"),
        ({"input_ids": [[5, 100]]}, "input_ids holds 100; this engine's ids are from 0 to 99"),
        ({"input_ids": [[-1]]}, "input_ids holds -1; this engine's ids are from 0 to 99"),
        ({"end_id": [100]}, "end_id holds 100; this engine's ids are from 0 to 99"),
        ({"stop_words_list": [[[100], [1]]]}, "stop_words_list holds 100; this engine's ids are from 0 to 99"),
        (
            {"stop_words_list": [[[5, 6], [3, -1]]]},
            "stop_words_list has the word ends [3]; they must increase, up to 2 at most",
        ),
        (
            {"stop_words_list": [[[5, 6], [1, 1]]]},
            "stop_words_list has the word ends [1, 1]; they must increase, up to 2 at most",
        ),
        (
            {"stop_words_list": [[[5] * 257, range(1, 258)]]},
            "stop_words_list holds 257 words; at most 256 are taken",
        ),
        (
            {"stop_words_list": [[[5] * 258, [1, 258] + [-1] * 256]]},
            "stop_words_list holds a word of 257 ids; at most 256 are taken",
        ),
        (
            {"guided_decoding_guide_type": [[b"regex"]], "guided_decoding_guide": [["\u00e9".encode() * 8_193]]},
            "guided_decoding_guide has 16386 bytes; at most 16384 are taken",
        ),
        ({"stop_words_list": [[5, 6]]}, "stop_words_list has shape [1, 2]; it must be [2, N] or [1, 2, N]"),
        ({"request_output_len": [0]}, "request_output_len is 0; it must be at least 1"),
        ({"request_output_len": [4, 4]}, "request_output_len holds 2 values; it must be a single value"),
        (
            {"request_output_len": [30]},
            "3 prompt tokens + request_output_len 30 = 33; the context of this engine holds 32",
        ),
        (
            {"input_ids": [[5] * 25]},
            "the prompt has 25 tokens; without enable_chunked_context at most max_num_tokens (24) fit into one step",
        ),
        ({"temperature": [-1.0]}, "temperature is -1; it must be a number at least 0"),
        ({"temperature": [float("nan")]}, "temperature is nan; it must be a number at least 0"),
        ({"temperature": [float("inf")]}, "temperature is inf; it must be a number at least 0"),
        ({"runtime_top_p": [1.5]}, "runtime_top_p is 1.5; it must be a number from 0 to 1"),
        ({"runtime_top_k": [-1]}, "runtime_top_k is -1; it must be at least 0"),
        ({"repetition_penalty": [0.0]}, "repetition_penalty is 0; it must be a number above 0"),
        ({"presence_penalty": [2.5]}, "presence_penalty is 2.5; it must be a number from -2 to 2"),
        ({"frequency_penalty": [float("nan")]}, "frequency_penalty is nan; it must be a number from -2 to 2"),
        ({"min_tokens": [5]}, "min_tokens is 5; it must be from 0 to request_output_len (4)"),
        ({"beam_width": [2]}, "beam_width is 2; this engine supports 1 only"),
        ({"num_return_sequences": [2]}, "num_return_sequences is 2; this engine supports 1 only"),
        ({"return_context_logits": [True]}, "return_context_logits is true; this engine supports false only"),
        ({"bad_words_list": [[[5], [1]]]}, "bad_words_list is not supported by this engine"),
        ({"lora_task_id": [1]}, "lora_task_id is not supported by this engine"),
        ({"embedding_bias": [[0.0, 1.0]]}, "embedding_bias is 2 values; this engine supports 0 only"),
        (
            {"guided_decoding_guide_type": [[b"xml"]], "guided_decoding_guide": [[b"x"]]},
            "guided_decoding_guide_type is 'xml'; known: json, json_schema, regex, ebnf_grammar",
        ),
        (
            {"guided_decoding_guide_type": [[b"regex"]]},
            "guided_decoding_guide is missing: guide type regex needs one",
        ),
        ({"guided_decoding_guide": [[b"x"]]}, "guided_decoding_guide is given without guided_decoding_guide_type"),
        ({"guided_decoding_guide_type": [[b"\xff"]]}, "guided_decoding_guide_type is not UTF-8"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_numbers(values, message):
    with pytest.raises(BadRequest) as caught:
        read(**values)
    assert str(caught.value) == f"[BAD_REQUEST] {message}"


def test_a_request_larger_than_the_cache_is_refused():
    small = Limits(context_tokens=99, vocab_size=100, end_ids=END_IDS, cache_tokens=6, prompt_tokens=99)
    with pytest.raises(
        BadRequest, match="3 prompt tokens \\+ request_output_len 4 = 7; the KV cache of this engine holds 6"
    ):
        small.check(tensors.read(arrays(), END_IDS, True).generation)


TAKEN = tensors.HONOURED | tensors.IGNORED


@pytest.mark.parametrize("name", [tensor.name for tensor in ENGINE.inputs if tensor.name not in TAKEN])
def test_no_other_input_of_the_contract_is_ignored(name):
    """Each is refused with some value that asks for something."""
    dtype = DATATYPES[name]
    value = np.array([[True]]) if dtype is np.bool_ else np.array([[7]], dtype=dtype)
    if name == "bad_words_list":
        value = np.array([[[7], [1]]], dtype=np.int32)
    with pytest.raises(BadRequest, match=name):
        tensors.read({**arrays(), name: value}, END_IDS, True)


@pytest.mark.parametrize("name", sorted(tensors.IGNORED))
def test_what_has_no_say_in_the_answer_is_taken_with_any_value(name):
    value = np.array([[7]], dtype=DATATYPES[name])
    assert tensors.read({**arrays(seed=[1]), name: value}, END_IDS, True) == tensors.read(
        arrays(seed=[1]), END_IDS, True
    )


def test_all_that_nvidias_bls_sends_asks_for_nothing():
    """Without its client's options, and with the number of beams, so that no tensor of it is left out."""
    given = {name: value.reshape(-1) if value.shape == (1, 1) else value for name, value in sent_by_the_bls(3).items()}
    assert set(given) <= ENGINE.input_names
    plain = {name: value for name, value in given.items() if name in tensors.HONOURED}
    assert tensors.read(given, END_IDS, True) == tensors.read(plain, END_IDS, True)


def test_a_stop_request_is_known_by_its_flag_alone():
    assert tensors.is_stop({"stop": np.array([True])})
    assert not tensors.is_stop({"stop": np.array([False])})
    assert not tensors.is_stop({})


def test_a_batch_is_split_into_rows_without_their_padding():
    batch = arrays(
        input_ids=[[5, 6, 0], [7, 8, 9]],
        input_lengths=[2, 3],
        request_output_len=[4, 8],
        stop_words_list=[[[5, 6], [2, -1]], [[7, 0], [1, -1]]],
    )
    first, second = (tensors.read(row, END_IDS, exclude_input=True).generation for row in tensors.split_rows(batch))
    assert (first.prompt, first.max_tokens, first.stop_words) == ((5, 6), 4, ((5, 6),))
    assert (second.prompt, second.max_tokens, second.stop_words) == ((7, 8, 9), 8, ((7,),))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"input_lengths": [4]}, "input_lengths is 4, but input_ids holds 3 ids"),
        ({"input_lengths": [-1]}, "input_lengths is -1, but input_ids holds 3 ids"),
        ({"request_output_len": [4, 4]}, "request_output_len has 2 rows, input_ids has 1"),
        ({"input_ids": None, "input_lengths": [1]}, "input_ids is missing"),
        ({"input_ids": [5, 6], "input_lengths": [2]}, r"input_ids has shape \[2\]"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(values, complaint):
    with pytest.raises(BadRequest, match=complaint):
        tensors.split_rows(arrays(**values))
