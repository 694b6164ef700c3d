"""engines/classifier/graph.py and safetensors.py: the ONNX model against the same mathematics spelt out."""

import json

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.paths import ROOT
from engines.classifier import build, graph, safetensors
from engines.classifier import manifest as text_manifest
from engines.classifier.session import open_session
from scripts.build_engines import BUILT
from tests import small_bert

WEIGHTS = small_bert.weights()
LABELS = ("low", "middle", "high")
CHANCE = np.random.default_rng(1)
HEAD = graph.Head(CHANCE.normal(size=(small_bert.WIDTH, 3)), CHANCE.normal(size=3), LABELS)
ENCODER = graph.Encoder(
    WEIGHTS, small_bert.LAYERS, small_bert.HEADS, small_bert.EPSILON, max_tokens=small_bert.MAX_TOKENS
)
MODEL = graph.build(ENCODER, HEAD)
SESSION = open_session(MODEL.SerializeToString(), threads=1)
ROWS = st.lists(
    st.lists(st.integers(0, len(small_bert.VOCABULARY) - 1), min_size=1, max_size=small_bert.MAX_TOKENS),
    min_size=1,
    max_size=4,
)


def padded(rows):
    width = max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


@settings(deadline=None)
@given(ROWS)
def test_a_padded_batch_gives_each_text_what_the_mathematics_says(rows):
    embeddings, logits, labels, scores = SESSION.run(["embedding", "logits", "labels", "scores"], padded(rows))
    for place, row in enumerate(rows):
        expected = small_bert.embedding(WEIGHTS, row)
        assert np.abs(embeddings[place] - expected).max() < 1e-4
        expected_logits = expected @ HEAD.weight + HEAD.bias
        assert np.abs(logits[place] - expected_logits).max() < 1e-3
        order = np.argsort(-logits[place], kind="stable")
        assert labels[place].tolist() == [LABELS[number] for number in order]
        shares = np.exp(logits[place][order] - logits[place].max())
        assert np.abs(scores[place] - shares / shares.sum()).max() < 1e-5


def test_the_graph_is_sound_and_uses_nothing_but_the_standard():
    onnx.checker.check_model(MODEL, full_check=True)
    assert {node.domain for node in MODEL.graph.node} == {""}
    assert [(opset.domain, opset.version) for opset in MODEL.opset_import] == [("", graph.OPSET)]


def test_another_head_replaces_the_one_before():
    model = graph.build(ENCODER, HEAD)
    graph.set_head(model, graph.Head(HEAD.weight * 0, np.array([0.0, 1.0, 2.0]), ("a", "b", "c")))
    labels, scores = open_session(model.SerializeToString(), 1).run(["labels", "scores"], padded([[2, 5, 3]]))
    assert labels.tolist() == [["c", "b", "a"]]
    assert scores[0, 0] / scores[0, 1] == pytest.approx(np.e, rel=1e-5)


def test_a_weight_that_is_missing_is_named():
    fewer = {name: array for name, array in WEIGHTS.items() if name != "encoder.layer.1.output.dense.bias"}
    with pytest.raises(KeyError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        graph.build(graph.Encoder(fewer, 2, 2, 1e-12, 24), HEAD)


def test_safetensors_are_read_as_they_were_written(tmp_path):
    found = safetensors.read(small_bert.write_safetensors(tmp_path / "model.safetensors", WEIGHTS))
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], array) for name, array in WEIGHTS.items())


@pytest.mark.parametrize(
    "content",
    [b"", b"\x05\x00\x00\x00\x00\x00\x00\x00{}", b"\xff" * 100, b"\x02\x00\x00\x00\x00\x00\x00\x00[]" + b"x" * 8],
)
def test_a_broken_file_is_refused_by_name(tmp_path, content):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(safetensors.BadWeights, match=r"model\.safetensors is not a safetensors file"):
        safetensors.read(file)


def test_the_embeddings_are_those_of_sentence_transformers():
    """Made by tests/make_classifier_goldens.py of the same weights, in torch."""
    goldens = json.loads((ROOT / "tests" / "data" / "classifier_goldens.json").read_text())
    manifest = text_manifest.load(BUILT / text_manifest.CLASSIFIER)
    ours = build.embed(manifest, [golden["text"] for golden in goldens])["embedding"]
    for golden, embedding in zip(goldens, ours, strict=True):
        assert np.abs(embedding - np.array(golden["embedding"])).max() < 1e-4, golden["text"][:40]
