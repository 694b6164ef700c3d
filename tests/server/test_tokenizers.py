"""The models preprocessing and postprocessing on the real server, with the default engines' tokenizer."""

from __future__ import annotations

import json
import queue
import random
import shutil
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from bls import manifest
from bls.tokens import byte_table, tokenizer_files
from tests.server.serving import ROOT, launched
from tests.small_tokenizers import SNIPPETS

pytestmark = pytest.mark.server

TYPES = {"BYTES": np.object_, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
MANIFEST = ROOT / "engines" / "built" / "large"
TEXTS = ["".join(random.Random(seed).choices(SNIPPETS, k=1 + seed % 12)) for seed in range(200)]


@pytest.fixture(scope="module")
def client(server) -> Iterator[grpc.InferenceServerClient]:
    with grpc.InferenceServerClient(server.grpc_url) as client:
        yield client


@pytest.fixture(scope="module")
def local():
    return tokenizer_files.load(manifest.load(MANIFEST))


def tensor(name, datatype, values):
    array = np.array(values, TYPES[datatype])
    given = grpc.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def strings(name, *rows):
    return tensor(name, "BYTES", [[text.encode() for text in row] for row in rows])


def prompt(text, *more, rows=1):
    return [strings("QUERY", *[[text]] * rows), tensor("REQUEST_OUTPUT_LEN", "INT32", [[16]] * rows), *more]


def ask(client, model, inputs, *names):
    outputs = [grpc.InferRequestedOutput(name) for name in names] or None
    return client.infer(model, inputs, outputs=outputs)


def ask_all(client, model, requests, name):
    """All at once, so that the server makes batches of them; an answer or an error each, in order."""
    answers = queue.SimpleQueue()

    def put(place, result, error):
        answers.put((place, (result, error)))

    for place, inputs in enumerate(requests):
        client.async_infer(model, inputs, partial(put, place), outputs=[grpc.InferRequestedOutput(name)])
    found = dict(answers.get(timeout=60) for _ in requests)
    return [found[place] for place in range(len(requests))]


def test_ids_are_the_tokenizers_own(client, local):
    answers = ask_all(client, "preprocessing", [prompt(text) for text in TEXTS], "INPUT_ID")
    for text, (result, error) in zip(TEXTS, answers, strict=True):
        assert error is None
        assert result.as_numpy("INPUT_ID").tolist() == [local.encode(text, add_special_tokens=True)]


def test_text_is_the_tokenizers_own_and_the_byte_tables(client, local):
    chance = random.Random(3)
    sequences = [[chance.randrange(local.vocab_size) for _ in range(chance.randint(1, 30))] for _ in range(200)]
    requests = [
        [tensor("TOKENS_BATCH", "INT32", [[ids]]), tensor("SEQUENCE_LENGTH", "INT32", [[len(ids)]])]
        for ids in sequences
    ]
    engine = manifest.load(MANIFEST)
    table = byte_table.open_table(engine.token_bytes_path, engine.tokenizer.sha256)
    for ids, (result, error) in zip(sequences, ask_all(client, "postprocessing", requests, "OUTPUT"), strict=True):
        assert error is None
        (text,) = result.as_numpy("OUTPUT")
        decoder = table.decoder()
        assert text.decode() == local.decode(ids) == decoder.push(ids) + decoder.finish()


def test_one_bad_request_does_not_harm_those_beside_it(client, local):
    bad = tensor("TIER", "BYTES", [[b"huge"]])
    requests = [prompt(text, *[bad] * (place % 3 == 0)) for place, text in enumerate(TEXTS)]
    for place, (result, error) in enumerate(ask_all(client, "preprocessing", requests, "INPUT_ID")):
        if place % 3 == 0:
            assert error.message() == "[BAD_REQUEST] TIER is 'huge'; it must be one of small, large"
        else:
            assert result.as_numpy("INPUT_ID").tolist() == [local.encode(TEXTS[place], add_special_tokens=True)]


def test_requests_with_different_numbers_of_words_are_answered_each_with_its_own(client, local):
    words = [[f"word{n}" for n in range(count % 5)] for count in range(100)]
    requests = [prompt("hi", *([strings("STOP_WORDS_DICT", row)] if row else [])) for row in words]
    for row, (result, error) in zip(words, ask_all(client, "preprocessing", requests, "STOP_WORDS_IDS"), strict=True):
        assert error is None
        ids, ends = result.as_numpy("STOP_WORDS_IDS")[0].tolist()
        assert ids == [token for word in row for token in local.encode_word(word)[0]]
        assert [end for end in ends if end != -1] == np.cumsum([len(local.encode_word(w)[0]) for w in row]).tolist()


def test_a_request_of_several_rows_is_one_answer(client, local):
    inputs = [strings("QUERY", ["hi"], ["The quick brown fox"]), tensor("REQUEST_OUTPUT_LEN", "INT32", [[1], [2]])]
    result = ask(client, "preprocessing", inputs)
    lengths = result.as_numpy("REQUEST_INPUT_LEN")[:, 0]
    ids = [row[:length].tolist() for row, length in zip(result.as_numpy("INPUT_ID"), lengths, strict=True)]
    assert ids == [local.encode("hi", True), local.encode("The quick brown fox", True)]
    assert result.as_numpy("REQUEST_OUTPUT_LEN").tolist() == [[1], [2]]


def test_only_what_is_asked_for_comes_back(client):
    result = ask(client, "preprocessing", prompt("hi"), "OUT_END_ID", "REQUEST_INPUT_LEN")
    assert {output.name for output in result.get_response().outputs} == {"OUT_END_ID", "REQUEST_INPUT_LEN"}


def test_messages_are_rendered_by_the_models_template(client, local):
    messages = json.dumps([{"role": "system", "content": "You are terse."}, {"role": "user", "content": "hi"}])
    inputs = [strings("MESSAGES", [messages]), tensor("REQUEST_OUTPUT_LEN", "INT32", [[16]])]
    ids = ask(client, "preprocessing", inputs, "INPUT_ID").as_numpy("INPUT_ID")[0].tolist()
    expected = "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert local.decode(ids, skip_special_tokens=False) == expected


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ([strings("MESSAGES", ["["]), tensor("REQUEST_OUTPUT_LEN", "INT32", [[1]])], "messages is not JSON"),
        ([tensor("REQUEST_OUTPUT_LEN", "INT32", [[1]])], "give either QUERY or MESSAGES"),
        ([tensor("QUERY", "BYTES", [[b"\xff"]]), tensor("REQUEST_OUTPUT_LEN", "INT32", [[1]])], "not valid UTF-8"),
        (prompt("hi" * 10_000_000), "at most 262144 are taken"),
    ],
)
def test_a_bad_request_is_an_invalid_argument_in_one_line(client, inputs, complaint):
    with pytest.raises(InferenceServerException, match=complaint) as caught:
        ask(client, "preprocessing", inputs)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "\n" not in caught.value.message()
    assert "Traceback" not in caught.value.message()


def test_a_bad_length_is_an_invalid_argument(client):
    inputs = [tensor("TOKENS_BATCH", "INT32", [[[1, 2]]]), tensor("SEQUENCE_LENGTH", "INT32", [[3]])]
    with pytest.raises(InferenceServerException, match=r"\[BAD_REQUEST\] SEQUENCE_LENGTH is 3") as caught:
        ask(client, "postprocessing", inputs)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_beams_and_rows_keep_their_places(client, local):
    texts = [["one", "two two"], ["three", "你好 🙂"]]
    ids = [[local.encode(text, False) for text in beams] for beams in texts]
    width = max(len(beam) for beams in ids for beam in beams)
    padded = [[[*beam, *[0] * (width - len(beam))] for beam in beams] for beams in ids]
    inputs = [
        tensor("TOKENS_BATCH", "INT32", padded),
        tensor("SEQUENCE_LENGTH", "INT32", [[len(beam) for beam in beams] for beams in ids]),
    ]
    output = ask(client, "postprocessing", inputs).as_numpy("OUTPUT")
    assert [text.decode() for text in output] == [text for beams in texts for text in beams]


def test_an_engine_that_is_not_built_is_named_when_the_model_loads(tmp_path):
    repository = tmp_path / "model_repository"
    for model in ("postprocessing", "tensorrt_llm_small"):
        shutil.copytree(ROOT / "model_repository" / model, repository / model)
    with launched(tmp_path, repository, "--load-model=postprocessing") as launch:
        assert launch.wait() == 3
    assert "engine.json is missing: run `python -m scripts.build_engines" in launch.console.read_text()
