"""The engines by TensorRT-LLM's LLM API on the real server; the library is its stand-in, which counts, no model."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import tritonclient.grpc as grpc

from bls.contract import ENGINE_CONTROL, LLAMA_7B, SMALL
from tests.llmapi_models import STAND_IN
from tests.nvidia_bls import sent_by_the_bls
from tests.server import echo_repository
from tests.server.clients import answer, events_of, eventually, grpc_stream, inputs_of, metric, refusal
from tests.server.serving import running_server

pytestmark = pytest.mark.server

DIES = 67  # An id that ends the stand-in's engine, see tests/llmapi_stand_in.
ENGINE_OUTPUTS = {"outputs": [grpc.InferRequestedOutput(name) for name in ("output_ids", "sequence_length")]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llmapi")
    repository = echo_repository.make(folder, routers=2)
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"vocab_size": 49152}))
    for name in (SMALL, LLAMA_7B):
        served_by_the_llm_api(repository / name, model)
    with running_server(folder, repository, "--model-config-name=llmapi") as running:
        yield running


def served_by_the_llm_api(target, model):
    """A model as it is in the repository, but for the place of its weights and that of the library."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(echo_repository.SOURCE / target.name, target)
    config = target / "configs" / "llmapi.pbtxt"
    text, found = re.subn(r'(key: "model" value { string_value: ")', rf"\g<1>{model}", config.read_text())
    assert found == 1
    config.write_text(text)
    entry = target / "1" / "model.py"
    path = f'import os\nos.environ["PYTHONPATH"] = os.pathsep.join((os.environ["PYTHONPATH"], {str(STAND_IN)!r}))\n'
    entry.write_text(path + entry.read_text())


def asked(*ids, max_tokens=8, **values):
    """Tensors of an engine request."""
    tensors = {"input_ids": np.array([ids], np.int32), "input_lengths": len(ids), "request_output_len": max_tokens}
    return {**tensors, "streaming": True, "end_id": 49151, **values}


def engine_stream(server, *ids, request_id="", **values):
    return grpc_stream(server, SMALL, {"request_id": request_id, **ENGINE_OUTPUTS}, **asked(*ids, **values))


def ids_of(messages):
    arrays = [message.as_numpy("output_ids") for message in messages]
    return [token for array in arrays if array is not None for token in array.reshape(-1).tolist()]


def engine_metric(server, family, **kind):
    return metric(server, f"nv_trt_llm_{family}_metrics", model=SMALL, **kind)


def test_the_router_streams_an_answer_of_it(server):
    wishes = {"return_num_output_tokens": True, "return_route_info": True}
    asked_for = {"text_input": "What is the capital of France?", "max_tokens": 24, **wishes}
    events = events_of(server, **asked_for)
    whole = answer(server, **asked_for)
    assert "".join(event["text_output"] for event in events) == whole["text_output"] != ""
    assert (events[-1]["finish_reason"], events[-1]["model"]) == ("length", SMALL)
    assert sum(event["num_output_tokens"] for event in events) == 24


def test_a_stop_by_the_request_id_ends_it_with_what_it_has(server):
    with engine_stream(server, 100, request_id="victim", max_tokens=3000) as stream:
        messages = stream.messages()
        first = next(messages)
        client = grpc.InferenceServerClient(server.grpc_url)
        client.infer(ENGINE_CONTROL, inputs_of(engine=SMALL, request_id="victim"))
        client.close()
        ids = ids_of([first, *messages])
    assert ids == list(range(101, 101 + len(ids)))
    assert 0 < len(ids) < 3000


def test_a_client_that_left_frees_its_cache(server):
    with engine_stream(server, 100, max_tokens=3000) as stream:
        next(stream.messages())
        eventually(lambda: engine_metric(server, "kv_cache_block", kv_cache_block_type="used") > 0)
        stream.cancel()
        eventually(lambda: engine_metric(server, "request", request_type="active") == 0)
    assert engine_metric(server, "kv_cache_block", kv_cache_block_type="used") == 0


def test_its_metrics_have_tensorrt_llms_names(server):
    with engine_stream(server, 100) as stream:
        assert ids_of(stream.messages()) == list(range(101, 109))
    assert engine_metric(server, "request", request_type="max") == 64
    assert engine_metric(server, "kv_cache_block", kv_cache_block_type="tokens_per") == 32
    assert engine_metric(server, "kv_cache_block", kv_cache_block_type="max") > 0
    assert engine_metric(server, "kv_cache_block", kv_cache_block_type="reused") > 0
    assert engine_metric(server, "runtime_memory", memory_type="gpu") > 0
    assert engine_metric(server, "general", general_type="iteration_counter") > 0


def test_what_it_can_not_do_is_refused_by_name(server):
    guide = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "[0-"}
    refused = refusal(server, text_input="Hi", max_tokens=4, **guide)
    assert refused.startswith("[BAD_REQUEST] guided_decoding_guide is not a valid regex: Regex parsing error")
    with engine_stream(server, 100, bad_words_list=np.array([[[5], [1]]], np.int32)) as stream:
        (error,) = stream.messages()
    assert error.message() == "[BAD_REQUEST] bad_words_list is not supported by this engine"


@pytest.mark.parametrize("streaming", [False, True])
def test_all_that_nvidias_bls_sends_is_taken(server, streaming):
    """Of its models the one behind it is decoupled or not; both are asked."""
    sent = sent_by_the_bls(100, max_tokens=4, streaming=streaming)
    with grpc_stream(server, SMALL, ENGINE_OUTPUTS, **sent) as stream:
        assert ids_of(stream.messages()) == [101, 102, 103, 104]
    if not streaming:
        client = grpc.InferenceServerClient(server.grpc_url)
        assert client.infer(LLAMA_7B, inputs_of(**sent)).as_numpy("output_ids").tolist() == [[[101, 102, 103, 104]]]
        client.close()


def test_an_engine_that_died_says_so_and_comes_back(server):
    with engine_stream(server, DIES) as stream:
        (error,) = stream.messages()
    assert error.message() == "[INTERNAL] the engine failed; the server's log says why"

    def answers():
        with engine_stream(server, 100) as stream:
            messages = list(stream.messages())
        if isinstance(messages[-1], Exception):
            assert messages[-1].message() == "[UNAVAILABLE] the engine is being started again"
            return False
        return ids_of(messages) == list(range(101, 109))

    eventually(answers)


def test_the_batched_engine_answers_the_rows_of_a_request(server):
    client = grpc.InferenceServerClient(server.grpc_url)
    column = {"input_lengths": [[2], [1]], "request_output_len": [[4], [4]], "end_id": [[49151], [49151]]}
    rows = {name: np.array(values, np.int32) for name, values in column.items()}
    result = client.infer(LLAMA_7B, inputs_of(input_ids=np.array([[9, 100], [200, 0]], np.int32), **rows))
    client.close()
    assert result.as_numpy("output_ids").tolist() == [[[101, 102, 103, 104]], [[201, 202, 203, 204]]]
