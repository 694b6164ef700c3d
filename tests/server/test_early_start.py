"""An engine that begins before the classifier has answered: nothing of it goes out before the verdict.

On the real server, with a classifier that answers when the test says so, and what it says.
"""

from __future__ import annotations

import re
import shutil

import pytest

from bls.contract import LARGE, ROUTER, SMALL, TEXT_PIPELINE
from bls.routing.policy_file import SHIPPED
from tests.server import echo_repository
from tests.server.clients import eventually, grpc_stream, idle, metric, text_of
from tests.server.serving import running_server

pytestmark = pytest.mark.server

CONFIG = """backend: "python"
max_batch_size: 64
input [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "labels" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "scores" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "unknown_share" data_type: TYPE_FP32 dims: [ 1 ] }
]
"""
MODEL = """
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

SAYS = Path({says!r})


class TritonPythonModel:
    def execute(self, requests):
        while not SAYS.exists():
            time.sleep(0.01)
        label = SAYS.read_text()
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("labels", np.array([[label.encode()]], dtype=object)),
                    pb_utils.Tensor("scores", np.array([[0.99]], dtype=np.float32)),
                    pb_utils.Tensor("unknown_share", np.array([[0.0]], dtype=np.float32)),
                ]
            )
            for _ in requests
        ]
"""


class HeldClassifier:
    def __init__(self, folder, repository):
        self._says = folder / "says"
        model = repository / TEXT_PIPELINE
        shutil.rmtree(model, ignore_errors=True)
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(f'name: "{TEXT_PIPELINE}"\n{CONFIG}')
        (model / "1" / "model.py").write_text(MODEL.format(says=str(self._says)))

    def hold(self):
        self._says.unlink(missing_ok=True)

    def say(self, label):
        draft = self._says.with_suffix(".draft")
        draft.write_text(label)
        draft.replace(self._says)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    folder = tmp_path_factory.mktemp("early")
    repository = echo_repository.make(folder, routers=2)
    # A classifier that was late is else not asked for a while.
    (folder / "policy.py").write_text(re.sub(r"budget_ms=[\d.]+", "budget_ms=60_000.0", SHIPPED.read_text()))
    echo_repository.set_parameter(repository, ROUTER, "policy_file", "policy.py")
    classifier = HeldClassifier(folder, repository)
    with running_server(folder, repository) as server:
        yield server, classifier
        classifier.say("other")  # a classifier that waits would hold the server's end up


def asked_while_held(server, classifier, text):
    """A stream whose engine has given tokens while its classifier is silent."""
    idle(server)
    classifier.hold()
    before = metric(server, "echo_engine_tokens_total", model=SMALL)
    stream = grpc_stream(server, text_input=text, max_tokens=50, stream=True, return_route_info=True)
    return stream, lambda: metric(server, "echo_engine_tokens_total", model=SMALL) >= before + 2


@pytest.mark.parametrize(
    ("label", "outcome", "model", "reason"),
    [
        ("violence", "refused", "none", "classifier_violence"),
        ("code", "rerouted", LARGE, "hard"),
        ("other", None, SMALL, "default"),
    ],
)
def test_nothing_goes_out_before_the_verdict_and_after_it_what_it_says(held, label, outcome, model, reason):
    server, classifier = held
    name = "llm_router_early_starts_undone_total"
    undone = {each: metric(server, name, outcome=each) for each in ("refused", "rerouted")}
    opened, engine_has_answered = asked_while_held(server, classifier, "one two three four")
    with opened as stream:
        eventually(engine_has_answered)
        assert stream.arrived == 0
        classifier.say(label)
        messages = list(stream.messages())
    text = "".join(map(text_of, messages))
    assert (text == "one two three four") == (label != "violence")
    last = messages[-1]
    assert (last.as_numpy("model")[0].decode(), last.as_numpy("reason")[0].decode()) == (model, reason)
    idle(server)
    for each, count in undone.items():
        assert metric(server, name, outcome=each) == count + (each == outcome)
