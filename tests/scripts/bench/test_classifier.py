"""scripts/bench/classifier.py, as far as it needs no server."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bls.contract import TEXT_CLASSIFIER
from scripts.bench import classifier, classifier_models
from scripts.bench.classifier import Round
from scripts.bench.request_load import Load


def test_the_baseline_is_the_same_model_without_batching_and_with_the_threads_it_is_given():
    text = (classifier_models.SOURCE / TEXT_CLASSIFIER / "configs" / "cpu.pbtxt").read_text()
    served, plain = (
        text_format.Parse(each, model_config_pb2.ModelConfig()) for each in (text, classifier_models.plain(text, 3))
    )
    assert not plain.HasField("dynamic_batching")
    assert [group.count for group in plain.instance_group] == [1]
    assert plain.parameters["threads"].string_value == "3"
    for config in (served, plain):
        for field in ("dynamic_batching", "instance_group", "parameters"):
            config.ClearField(field)
    assert plain == served


def rounds(*rates):
    return [Round(Load(2.0, (0.01,) * int(2 * rate)), batch=rate / 10, cpu_ms=1.0) for rate in rates]


def test_gains_are_of_rounds_that_ran_beside_each_other():
    gains = classifier._gains({"plain": rounds(100, 50), "batched": rounds(300, 200)})
    assert gains == {"batched_over_plain": {"median": pytest.approx(3.5), "min": 3.0, "max": 4.0}}
    assert classifier._gains({"batched": rounds(300)}) == {}


def test_the_table_has_a_line_for_each_kind():
    measured = {"plain": rounds(100), "batched": rounds(300)}
    found = {kind: classifier._summary(each) for kind, each in measured.items()} | classifier._gains(measured)
    lines = classifier.table("8 tokens, 64 clients", found, list(measured)).strip().splitlines()
    assert lines[0] == "8 tokens, 64 clients"
    assert lines[2].split() == ["plain", "100.0", "10.0", "10.0", "10.0", "1.0"]
    assert lines[3].split() == ["batched", "300.0", "10.0", "10.0", "30.0", "1.0", "3.00", "(3.00", "to", "3.00)"]
