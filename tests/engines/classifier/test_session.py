"""engines/classifier/session.py and batches.py: batches of any lengths, with a small model and a scripted one."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls.errors import BadRequest
from engines.classifier import batches, graph, nodes
from engines.classifier.labels import LABELS
from engines.classifier.session import Classifier
from tests import small_bert

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=9)
ALL = frozenset({"logits", "embedding", "labels", "scores"})


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    encoder = nodes.Encoder(small_bert.weights(), 2, 2, small_bert.EPSILON, small_bert.MAX_TOKENS)
    weight = np.random.default_rng(2).normal(size=(small_bert.WIDTH, len(LABELS)))
    model = graph.build(encoder, graph.Head(weight, np.zeros(len(LABELS)), LABELS))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return Classifier(small_bert.manifest(folder))


def request(*rows, requested=ALL, width=None):
    width = width or max(map(len, rows))
    ids, mask = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}, requested


def cost(lengths, cut):
    return sum(batches.RUN_TOKENS + len(run) * max(lengths[place] for place in run) for run in cut)


@given(LENGTHS)
def test_every_text_is_in_one_run_and_no_other_cut_of_the_sorted_lengths_is_cheaper(lengths):
    found = batches.runs(lengths)
    assert sorted(place for run in found for place in run) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    cuts = [places for count in range(len(lengths)) for places in combinations(range(1, len(lengths)), count)]
    others = [
        [order[begin:end] for begin, end in zip((0, *places), (*places, len(lengths)), strict=True)] for places in cuts
    ]
    small = [
        cut for cut in others if all(len(run) * max(lengths[p] for p in run) <= 1024 or len(run) == 1 for run in cut)
    ]
    assert cost(lengths, found) == min(cost(lengths, cut) for cut in small)


def test_equal_lengths_are_one_run_until_it_is_large():
    assert len(batches.runs([8] * 64)) == 1
    assert [len(run) for run in batches.runs([256] * 8)] == [4, 4]


def test_one_long_text_does_not_lengthen_the_short_ones():
    assert sorted(map(len, batches.runs([8] * 63 + [256]))) == [1, 63]


def test_no_texts_are_no_runs():
    assert batches.runs([]) == []


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 17), min_size=1, max_size=2 * small_bert.MAX_TOKENS), min_size=1, max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_each_request_is_answered_as_if_it_were_alone(classifier, requests):
    together = classifier.answer([request(*rows) for rows in requests])
    for rows, answer in zip(requests, together, strict=True):
        for place, row in enumerate(rows):
            (alone,) = classifier.answer([request(row)])
            for name in ("logits", "embedding", "scores"):
                assert np.abs(answer[name][place] - alone[name][0]).max() < 1e-4
            assert set(answer["labels"][place]) == {label.encode() for label in LABELS}


def test_padding_of_the_clients_own_changes_nothing(classifier):
    ((alone,), (padded,)) = (classifier.answer([request([2, 5, 6, 3], width=width)]) for width in (4, 40))
    assert np.array_equal(alone["logits"], padded["logits"])


def test_only_what_is_asked_for_comes_back(classifier):
    answers = classifier.answer([request([2, 3], requested=frozenset({"logits"})), request([2, 3])])
    assert [frozenset(answer) for answer in answers] == [{"logits"}, ALL]


def test_a_request_for_nothing_gets_nothing(classifier):
    assert classifier.answer([request([2, 3], requested=frozenset())]) == [{}]


@pytest.mark.parametrize(
    ("ids", "mask", "complaint"),
    [
        ([[2, 3]], [[1]], r"input_ids is \[1, 2\], attention_mask is \[1, 1\]"),
        ([[2, 3]], [[1, 2]], "attention_mask holds other values than 0 and 1"),
        ([[2, 18]], [[1, 1]], "input_ids holds 2 to 18; ids are 0 to 17"),
        ([[-1, 3]], [[1, 1]], "input_ids holds -1 to 3; ids are 0 to 17"),
        ([[2, 3], [2, 3]], [[1, 1], [0, 0]], "attention_mask leaves no token in a row"),
        ([[]], [[]], "attention_mask leaves no token in a row"),
        ([[5] * 49], [[1] * 49], "input_ids has 49 tokens; at most 48 are taken"),
    ],
)
def test_a_bad_request_fails_alone(classifier, ids, mask, complaint):
    bad = {"input_ids": np.array(ids, np.int64), "attention_mask": np.array(mask, np.int64)}
    good = request([2, 5, 3])
    before, error, after = classifier.answer([good, (bad, ALL), good])
    assert isinstance(error, BadRequest)
    with pytest.raises(BadRequest, match=complaint):
        raise error
    (alone,) = classifier.answer([good])
    assert np.allclose(before["logits"], alone["logits"], atol=1e-5) and np.array_equal(
        before["labels"], after["labels"]
    )


def test_threads_are_at_least_one(classifier):
    with pytest.raises(ValueError, match="parameter threads is 0; it must be at least 1"):
        Classifier(classifier._manifest, threads=0)
