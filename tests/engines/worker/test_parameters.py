"""engines/worker/parameters.py: config.pbtxt's parameters, and the words for wrong ones."""

import pytest

from engines.worker import parameters
from engines.worker.parameters import BadParameter, EngineParameters

MINIMAL = {"gpt_model_type": "inflight_fused_batching"}


def test_the_batching_is_all_that_has_to_be_said():
    assert parameters.read(MINIMAL) == EngineParameters(in_flight=True)


def test_every_parameter_is_read():
    read = parameters.read(
        {
            "gpt_model_type": "V1",
            "batch_scheduler_policy": "max_utilization",
            "max_batch_size": "4",
            "max_queue_size": "9",
            "max_num_tokens": "128",
            "max_tokens_in_paged_kv_cache": "4096",
            "enable_kv_cache_reuse": "false",
            "enable_chunked_context": "0",
            "exclude_input_in_output": "FALSE",
            "stream_min_interval_ms": "20.5",
            "cancellation_check_period_ms": "25",
            "stats_check_period_ms": "200",
            "frozen_worker_seconds": "5",
            "longest_step_seconds": "60",
            "max_grammar_cpu_ms": "500",
            "inference_num_threads": "2",
        }
    )
    assert read == EngineParameters(
        False, False, 4, 9, 128, 4096, False, False, False, None, 20.5, 25, 200, 5, 60, 500, 2
    )
    assert parameters.read({**MINIMAL, "stream_interval": "3"}).stream_interval == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_batchsize": "4"}, "parameter max_batchsize is unknown; known: gpt_model_type, .*max_batch_size"),
        (
            {"gpt_model_type": "inflight"},
            "parameter gpt_model_type is 'inflight'; legal: inflight_fused_batching, .*V1",
        ),
        ({"batch_scheduler_policy": "none"}, "legal: guaranteed_no_evict, max_utilization"),
        ({"enable_kv_cache_reuse": "yes"}, "parameter enable_kv_cache_reuse is 'yes'; legal: true, .*false"),
        ({"max_batch_size": "0"}, "parameter max_batch_size is '0'; legal: a whole number from 1 to 4096"),
        ({"max_batch_size": "many"}, "parameter max_batch_size is 'many'; legal: a whole number"),
        ({"stream_min_interval_ms": "101"}, "legal: a number from 0 to 100"),
        ({"stream_min_interval_ms": "nan"}, "legal: a number from 0 to 100"),
        ({"stream_interval": "2", "stream_min_interval_ms": "5"}, "exclude each other"),
        ({"enable_chunked_context": "false", "max_num_tokens": "8"}, "max_num_tokens is 8; .* at least max_batch_size"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name_with_what_is_legal(wrong, message):
    with pytest.raises(BadParameter, match=message):
        parameters.read({**MINIMAL, **wrong})


def test_the_batching_must_be_said():
    with pytest.raises(BadParameter, match="gpt_model_type is missing"):
        parameters.read({})
