"""The engine models on the real server, with the model that is built for the small tier."""

from __future__ import annotations

import queue
import threading
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from bls.contract import ENGINE, ENGINE_CONTROL, SMALL
from tests.nvidia_bls import sent_by_the_bls

pytestmark = pytest.mark.server

PROMPT = [1, 4093, 198, 31530, 549, 253, 1977, 2, 198, 1, 520, 9531, 198]
NEVER = 49151  # An end id that the model doesn't choose: a request runs to its length.
OUTPUTS = ("output_ids", "sequence_length")
WAIT_S = 60
TYPES = {
    "TYPE_INT32": np.int32,
    "TYPE_UINT64": np.uint64,
    "TYPE_FP32": np.float32,
    "TYPE_BOOL": np.bool_,
    "TYPE_STRING": np.object_,
}
DTYPES = {tensor.name: TYPES.get(tensor.datatype) for tensor in ENGINE.inputs}


def infer_input(name, value, dtype):
    array = np.array(value, dtype=dtype)
    array = array.reshape(1, 1) if array.ndim == 0 else array
    tensor = grpc.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


class Stream:
    """One gRPC stream. `read` gives what arrived for the request, up to its end."""

    def __init__(self, server):
        self._client = grpc.InferenceServerClient(server.grpc_url)
        self._news = queue.Queue()
        self._client.start_stream(lambda result, error: self._news.put((result, error)))

    def send(self, request_id="", model=SMALL, outputs=OUTPUTS, prompt=PROMPT, max_tokens=8, **values):
        tensors = {"input_ids": [prompt], "input_lengths": len(prompt), "request_output_len": max_tokens}
        tensors |= {"streaming": True, "end_id": NEVER} | values
        self._client.async_stream_infer(
            model,
            [infer_input(name, value, DTYPES[name]) for name, value in tensors.items()],
            outputs=[grpc.InferRequestedOutput(name) for name in outputs],
            request_id=request_id,
        )
        return self

    def next(self):
        """One response's outputs, and whether it is the last. Raises the error that came instead."""
        result, error = self._news.get(timeout=WAIT_S)
        if error is not None:
            raise error
        response = result.get_response()
        arrays = {output.name: result.as_numpy(output.name) for output in response.outputs}
        return arrays, response.parameters["triton_final_response"].bool_param

    def read(self):
        responses, is_last = [], False
        while not is_last:
            arrays, is_last = self.next()
            responses.append(arrays)
        return responses

    def leave(self):
        self._client.stop_stream(cancel_requests=True)

    def close(self):
        self._client.stop_stream()
        self._client.close()


@pytest.fixture
def stream(server):
    made = Stream(server)
    yield made
    made.close()


def ids(responses):
    return [token for arrays in responses for token in arrays["output_ids"].reshape(-1).tolist()]


def gauge(server, family, kind):
    """One of TensorRT-LLM's gauges for the small engine."""
    text = urllib.request.urlopen(server.metrics_url, timeout=10).read().decode()
    ours = [line for line in text.splitlines() if line.startswith(f"nv_trt_llm_{family}_metrics{{")]
    (line,) = [line for line in ours if f'type="{kind}"' in line and f'model="{SMALL}"' in line]
    return float(line.rpartition(" ")[2])


def eventually(holds):
    """Waits until it holds; how soon is not asserted, since the machine may be busy."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)


def refusal(stream):
    with pytest.raises(InferenceServerException) as caught:
        stream.read()
    return caught.value.message()


def test_a_stream_and_a_whole_answer_have_the_same_ids(stream):
    streamed = stream.send().read()
    whole = stream.send(streaming=False).read()
    assert len(whole) == 1
    assert ids(streamed) == ids(whole)
    assert whole[0]["sequence_length"].tolist() == [[8]]


def test_requests_that_run_together_each_get_their_own_ids(server):
    # After these the likeliest id is above 0.7: other requests change the last bits, which decide near ties.
    prompts = [PROMPT[:length] for length in (9, 10, 11, 12)]
    streams = [Stream(server) for _ in prompts]
    alone = [ids(one.send(prompt=prompt).read()) for one, prompt in zip(streams, prompts, strict=True)]
    for one, prompt in zip(streams, prompts, strict=True):
        one.send(prompt=prompt)
    together = [ids(one.read()) for one in streams]
    for one in streams:
        one.close()
    assert [len(one) for one in together] == [8] * 4
    assert [one[0] for one in together] == [one[0] for one in alone]


def test_the_prompt_comes_first_if_it_is_asked_for(stream):
    assert ids(stream.send(exclude_input_in_output=False).read())[: len(PROMPT)] == PROMPT


def test_an_end_at_the_first_token_is_an_answer_without_ids(stream):
    (first, *_) = ids(stream.send().read())
    (only,) = stream.send(end_id=first).read()
    assert only["output_ids"].shape == (1, 1, 0)
    assert only["sequence_length"].tolist() == [[0]]


def test_a_stop_word_is_the_last_of_the_ids(stream):
    all_ids = ids(stream.send().read())
    word = all_ids[2:4]
    assert ids(stream.send(max_tokens=100, stop_words_list=[[word, [2, -1]]]).read()) == all_ids[:4]


def test_log_probs_come_with_the_ids(stream):
    outputs = (*OUTPUTS, "cum_log_probs", "output_log_probs")
    (whole,) = stream.send(outputs=outputs, return_log_probs=True, streaming=False).read()
    assert whole["output_log_probs"].shape == (1, 1, 8)
    assert whole["cum_log_probs"].shape == (1, 1)
    assert float(whole["cum_log_probs"][0, 0]) == pytest.approx(float(whole["output_log_probs"].sum()), rel=1e-5)


def test_only_the_outputs_that_are_wanted_come(stream):
    assert set(stream.send(outputs=("output_ids",), streaming=False).read()[0]) == {"output_ids"}


def test_the_same_seed_gives_the_same_ids_and_another_one_others(stream):
    drawn = [ids(stream.send(temperature=1.0, seed=seed, max_tokens=24).read()) for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_tokens": 0}, "[BAD_REQUEST] request_output_len is 0; it must be at least 1"),
        ({"prompt": [1, 10**6]}, "[BAD_REQUEST] input_ids holds 1000000; this engine's ids are from 0 to 49151"),
        ({"beam_width": 2}, "[BAD_REQUEST] beam_width is 2; this engine supports 1 only"),
        ({"bad_words_list": [[[5], [1]]]}, "[BAD_REQUEST] bad_words_list is not supported by this engine"),
        ({"stop": True}, "[BAD_REQUEST] stop needs the request id of the request to be stopped"),
        (
            {"guided_decoding_guide_type": b"regex", "guided_decoding_guide": b"[0-"},
            "[BAD_REQUEST] guided_decoding_guide is not a valid regex: Regex parsing error at position 4: Unclosed '['",
        ),
    ],
)
def test_a_bad_request_is_refused_in_one_line(stream, values, message):
    assert refusal(stream.send(**values)) == message


def test_after_a_bad_guide_the_next_request_is_served(stream):
    refusal(stream.send(guided_decoding_guide_type=b"json_schema", guided_decoding_guide=b"{"))
    assert len(ids(stream.send().read())) == 8


def test_a_guide_shapes_the_output(stream):
    guide = {"guided_decoding_guide_type": b"regex", "guided_decoding_guide": b"[0-9]{3}"}
    assert len(ids(stream.send(max_tokens=20, end_id=2, **guide).read())) == 3


def test_a_second_request_with_a_running_id_is_refused_by_name(server, stream):
    stream.send("twin", max_tokens=2000).next()
    other = Stream(server)
    assert refusal(other.send("twin")) == "[BAD_REQUEST] a request with the id 'twin' is running already"
    other.close()
    stream.leave()


def test_stop_answers_empty_and_ends_the_request_with_what_it_has(server, stream):
    stream.send("victim", max_tokens=2000).next()
    stopper = Stream(server)
    (answer,) = stopper.send("victim", stop=True).read()
    stopper.close()
    assert answer == {}
    assert len(ids(stream.read())) < 2000


def test_stopping_what_does_not_run_is_no_error(stream):
    assert stream.send("nobody", stop=True).read() == [{}]


def test_a_client_that_left_frees_its_cache(server):
    leaving = Stream(server)
    leaving.send(max_tokens=4000).next()
    eventually(lambda: gauge(server, "kv_cache_block", "used") > 0)
    leaving.leave()
    eventually(lambda: gauge(server, "request", "active") == gauge(server, "kv_cache_block", "used") == 0)


def test_the_cache_is_described_by_tensorrt_llms_metrics(server):
    blocks = {kind: gauge(server, "kv_cache_block", kind) for kind in ("max", "free", "used", "tokens_per", "fraction")}
    assert blocks["max"] == blocks["free"] + blocks["used"] > 0
    assert blocks["fraction"] == pytest.approx(blocks["used"] / blocks["max"])
    assert blocks["tokens_per"] > 0
    assert gauge(server, "request", "max") > 0


def test_the_blocks_of_a_prompt_that_came_before_are_counted_as_reused(server, stream):
    block = int(gauge(server, "kv_cache_block", "tokens_per"))
    before = {kind: gauge(server, "kv_cache_block", kind) for kind in ("reused", "missed")}
    for _ in range(2):
        stream.send(prompt=[*range(100, 100 + 2 * block), 7], max_tokens=2).read()
    eventually(lambda: gauge(server, "kv_cache_block", "reused") - before["reused"] == 2)
    eventually(lambda: gauge(server, "kv_cache_block", "missed") - before["missed"] == 3 + 1)


def control(server, engine, request_id):
    client = grpc.InferenceServerClient(server.grpc_url)
    named = {"engine": engine, "request_id": request_id}
    inputs = [infer_input(name, value.encode(), np.object_) for name, value in named.items()]
    try:
        return client.infer(ENGINE_CONTROL, inputs).as_numpy("stopped").tolist()
    finally:
        client.close()


def test_engine_control_ends_a_running_request(server, stream):
    stream.send("watched", max_tokens=2000).next()
    assert control(server, SMALL, "watched") == [[True]]
    assert len(ids(stream.read())) < 2000


@pytest.mark.parametrize(
    ("engine", "request_id", "message"),
    [
        ("llm_router", "a", "engine is 'llm_router'; the names of engine models begin with tensorrt_llm_"),
        (SMALL, "", "request_id is empty"),
    ],
)
def test_engine_control_refuses_what_makes_no_sense(server, engine, request_id, message):
    with pytest.raises(InferenceServerException, match=message):
        control(server, engine, request_id)


def test_many_streams_at_once_all_end(server):
    """More than fit into one batch: the rest waits its turn."""
    lengths = []

    def one():
        mine = Stream(server)
        lengths.append(len(ids(mine.send(max_tokens=5).read())))
        mine.close()

    threads = [threading.Thread(target=one) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert lengths == [5] * 40


@pytest.mark.parametrize("streaming", [False, True])
def test_all_that_nvidias_bls_sends_is_taken_and_the_answer_is_the_same(stream, streaming):
    sent = sent_by_the_bls(*PROMPT, max_tokens=8, streaming=streaming) | {"end_id": np.array([[NEVER]], np.int32)}
    given = {name: array for name, array in sent.items() if name not in ("input_ids", "input_lengths")}
    assert ids(stream.send(**given).read()) == ids(stream.send().read())
