"""NVIDIA's clients of tensorrt_llm_bls, as tensorrtllm_backend c2e65b8 has them: what they send, and how they read it.

Written after end_to_end_grpc_client.py and the functional tests of its tools folder. They take a text by
`as_numpy("text_output")[0].decode()` and a number by `[0][0]`, they know the model as tensorrt_llm_bls, and they ask it
by plain infer where its config says `decoupled: false`.
"""

from __future__ import annotations

import json
import urllib.request

import pytest
import tritonclient.grpc as grpc

from bls.contract import ROUTER
from tests.server import echo_repository
from tests.server.clients import event_stream, generate, grpc_stream, inputs_of
from tests.server.serving import running_server

pytestmark = pytest.mark.server

BLS = "tensorrt_llm_bls"
PLAIN = "plain_bls"
TEXT = "Здравствуй, 你好 hello there"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The router under two more names: by a link beside it, and as a copy that isn't decoupled."""
    folder = tmp_path_factory.mktemp("nvidia")
    repository = echo_repository.make(folder, routers=2)
    (repository / BLS).symlink_to(ROUTER)
    echo_repository.copy_model(repository, ROUTER, PLAIN, decoupled="false")
    with running_server(folder, repository) as running:
        yield running


def what_the_bls_client_sends(text: str = TEXT, streaming: bool = False) -> dict[str, object]:
    """Everything that end_to_end_grpc_client.py sends without options."""
    return {
        "text_input": text,
        "max_tokens": 100,
        "stream": streaming,
        "beam_width": 1,
        "temperature": 1.0,
        "exclude_input_in_output": True,
    }


def read(result: object) -> str:
    """A response, as that client reads it."""
    batch_index, sequence_index = result.as_numpy("batch_index"), result.as_numpy("sequence_index")
    assert (0 if batch_index is None else batch_index[0][0]) == 0
    assert (0 if sequence_index is None else sequence_index[0][0]) == 0
    return result.as_numpy("text_output")[0].decode("utf-8")


@pytest.mark.parametrize("model", [ROUTER, BLS])
@pytest.mark.parametrize("streaming", [False, True])
def test_the_grpc_client_reads_what_it_is_sent(server, model, streaming):
    with grpc_stream(server, model, **what_the_bls_client_sends(streaming=streaming)) as stream:
        assert "".join(read(message) for message in stream.messages()) == TEXT


def test_counts_have_a_row_and_a_column_and_texts_have_neither(server):
    wanted = {"return_num_input_tokens": True, "return_num_output_tokens": True}
    with grpc_stream(server, BLS, **what_the_bls_client_sends("one two three"), **wanted) as stream:
        (message,) = stream.messages()
    assert message.as_numpy("num_input_tokens")[0][0] == message.as_numpy("num_output_tokens")[0][0] == 3
    assert message.as_numpy("finish_reason")[0].decode() == "stop"


@pytest.mark.parametrize("model", [ROUTER, BLS, PLAIN])
def test_over_generate_a_text_is_a_text(server, model):
    status, reply = generate(server, model, text_input=TEXT, max_tokens=100)
    assert (status, reply["text_output"], reply["finish_reason"]) == (200, TEXT, "stop")


def test_over_generate_stream_each_piece_is_a_text(server):
    with event_stream(server, text_input=TEXT, max_tokens=100) as events:
        assert "".join(event["text_output"] for event in events) == TEXT


def test_a_model_that_is_not_decoupled_answers_plain_infer(server):
    """As the functional test asks, with the words that it sends for none."""
    given = inputs_of(text_input=TEXT, max_tokens=100, bad_words=[""], stop_words=[""])
    found = grpc.InferenceServerClient(server.grpc_url).infer(PLAIN, given, request_id="1")
    assert read(found) == TEXT


def test_so_it_does_over_http_and_the_shape_is_that_of_one_text(server):
    fields = {"text_input": ("BYTES", "hi"), "max_tokens": ("INT32", 5)}
    body = {
        "inputs": [
            {"name": name, "shape": [1, 1], "datatype": kind, "data": [value]} for name, (kind, value) in fields.items()
        ]
    }
    request = urllib.request.Request(f"{server.http_url}/v2/models/{PLAIN}/infer", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        outputs = {output["name"]: output for output in json.load(response)["outputs"]}
    assert (outputs["text_output"]["shape"], outputs["text_output"]["data"]) == ([1], ["hi"])


def test_a_model_that_is_not_decoupled_cannot_stream_and_says_so(server):
    status, reply = generate(server, PLAIN, text_input=TEXT, max_tokens=100, stream=True)
    assert (status, reply["error"]) == (
        400,
        "[BAD_REQUEST] stream is true, but the config of this model says decoupled: false",
    )


def test_errors_reach_plain_infer_too_and_the_next_request_is_answered(server):
    with pytest.raises(grpc.InferenceServerException, match="max_tokens is 0; it must be a single value > 0"):
        grpc.InferenceServerClient(server.grpc_url).infer(PLAIN, inputs_of(text_input="hi", max_tokens=0))
    assert generate(server, PLAIN, text_input="hi", max_tokens=4)[1]["text_output"] == "hi"
