"""engines/classifier/head.py and evaluation.py: the fit against what a best fit must be."""

import json

import numpy as np
import pytest

from engines.classifier import evaluation, head
from engines.classifier.labels import INTENTS, LABELS, RISKS

COUNT = len(LABELS)


def points(seed=0, count=60, classes=3, width=5):
    """Points of length 1 round one direction a class."""
    chance = np.random.default_rng(seed)
    centres = chance.normal(size=(classes, width))
    kinds = np.arange(count) % classes
    found = centres[kinds] + 0.15 * chance.normal(size=(count, width))
    return found / np.linalg.norm(found, axis=1, keepdims=True), kinds


def loss(weight, bias, embeddings, classes, penalty):
    shares = head.softmax(embeddings.astype(np.float64) @ weight + bias)
    losses = -np.log(shares[np.arange(len(classes)), classes])
    each = np.mean([losses[classes == number].mean() for number in np.unique(classes)])
    return each + penalty / 2 * (weight.astype(np.float64) ** 2).sum()


def test_no_step_in_any_direction_makes_the_fit_better():
    embeddings, classes = points()
    weight, bias = head.fit(embeddings, classes, 3, penalty=1e-2, steps=2000)
    best = loss(weight, bias, embeddings, classes, 1e-2)
    chance = np.random.default_rng(1)
    for _ in range(50):
        step = chance.normal(size=weight.shape) * 0.01
        assert loss(weight + step, bias, embeddings, classes, 1e-2) > best
        assert loss(weight, bias + chance.normal(size=3) * 0.01, embeddings, classes, 1e-2) >= best - 1e-9


def test_what_can_be_told_apart_is_and_others_of_the_same_kind_too():
    embeddings, classes = points()
    weight, bias = head.fit(embeddings[:30], classes[:30], 3)
    assert ((embeddings @ weight + bias).argmax(axis=1) == classes).all()


def test_a_class_with_many_examples_is_no_likelier_than_one_with_few():
    embeddings = np.ones((11, 1))
    classes = np.array([0] * 10 + [1])
    weight, bias = head.fit(embeddings, classes, 2)
    logits = np.ones(1) @ weight + bias
    assert logits[0] == pytest.approx(logits[1], abs=1e-3)


def test_the_same_examples_give_the_same_head():
    embeddings, classes = points()
    first, second = (head.fit(embeddings, classes, 3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def judged():
    """A prompt of each class, each its own but for one risk that is taken for code and one intent taken for hate."""
    classes = np.arange(COUNT)
    found = classes.copy()
    found[LABELS.index("malware")] = LABELS.index("code")
    found[LABELS.index("advice")] = LABELS.index("hate")
    return evaluation.judge(LABELS, classes, np.eye(COUNT)[found] * 5, fitted=1000)


def test_the_matrix_has_a_row_for_what_a_prompt_is_and_a_column_for_what_it_was_taken_for():
    found = judged()
    assert found.confusion[LABELS.index("malware")][LABELS.index("code")] == 1
    assert (found.held_out, found.accuracy) == (COUNT, pytest.approx(1 - 2 / COUNT))


def test_alarms_are_shares_of_the_risks_and_of_the_intents():
    alarms = {each.score: (each.found, each.false) for each in judged().alarms}
    assert alarms[0.5] == alarms[0.7] == (round(1 - 1 / len(RISKS), 4), round(1 / len(INTENTS), 4))
    assert alarms[0.9] == (0, 0)


def test_what_is_saved_is_json_and_is_read_again(tmp_path):
    found = judged()
    found.save(tmp_path / "evaluation.json")
    assert evaluation.load(tmp_path / "evaluation.json") == found
    assert json.loads((tmp_path / "evaluation.json").read_text())["accuracy"] == pytest.approx(found.accuracy, abs=1e-4)
