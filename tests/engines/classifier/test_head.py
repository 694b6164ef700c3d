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


def standard(embeddings):
    """Without their mean and spread, as the head is fitted to them."""
    centred = embeddings - embeddings.mean(axis=0)
    return centred / np.sqrt((centred**2).sum(axis=1).mean())


def loss(weight, bias, inputs, classes, penalty):
    shares = head.softmax(inputs @ weight + bias)
    losses = -np.log(shares[np.arange(len(classes)), classes])
    each = np.mean([losses[classes == number].mean() for number in np.unique(classes)])
    return each + penalty / 2 * (weight**2).sum()


def test_no_step_in_any_direction_makes_the_fit_better():
    embeddings, classes = points()
    inputs = standard(embeddings)
    weight, bias = (each.astype(np.float64) for each in head.fit(inputs, classes, 3, penalty=1e-2, steps=2000))
    best = loss(weight, bias, inputs, classes, 1e-2)
    chance = np.random.default_rng(1)
    for _ in range(50):
        step = chance.normal(size=weight.shape) * 0.01
        assert loss(weight + step, bias, inputs, classes, 1e-2) > best
        assert loss(weight, bias + chance.normal(size=3) * 0.01, inputs, classes, 1e-2) >= best - 1e-9


def test_where_the_embeddings_lie_and_how_near_each_other_changes_no_score():
    embeddings, classes = points()
    moved = embeddings * 0.1 + 3
    expected, found = (
        rows @ weight + bias for rows in (embeddings, moved) for weight, bias in [head.fit(rows, classes, 3)]
    )
    assert np.abs(head.softmax(found) - head.softmax(expected)).max() < 1e-3


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
    """A prompt a class in English, but for one risk that is taken for code and one intent taken for hate, and two
    innocent ones, of which one is taken for violence; one right one in German."""
    classes = np.arange(COUNT)
    found = classes.copy()
    found[LABELS.index("malware")] = LABELS.index("code")
    found[LABELS.index("advice")] = LABELS.index("hate")
    taken_for = [*found, LABELS.index("advice"), LABELS.index("violence"), 3]
    languages = [*["en"] * (COUNT + 2), "de"]
    return evaluation.judge(
        evaluation.Judged(np.array([*classes, -1, -1, 3]), languages, np.eye(COUNT)[taken_for] * 5), fitted=1000
    )


def test_the_matrix_has_a_row_for_what_a_prompt_is_and_a_column_for_what_it_was_taken_for():
    english, german = judged().languages
    assert english.confusion[LABELS.index("malware")][LABELS.index("code")] == 1
    assert (english.code, english.held_out, english.accuracy) == ("en", COUNT, pytest.approx(1 - 2 / COUNT))
    assert (german.code, german.held_out, german.accuracy) == ("de", 1, 1.0)
    assert (judged().held_out, judged().accuracy) == (COUNT + 1, pytest.approx((COUNT - 1) / (COUNT + 1)))


def test_alarms_are_shares_of_the_risks_and_of_the_intents_and_refusals_of_innocent_prompts_are_counted():
    english, _ = judged().languages
    alarms = {each.score: (each.found, each.false, each.refused) for each in english.alarms}
    assert alarms[0.5] == alarms[0.7] == (round(1 - 1 / len(RISKS), 4), round(1 / len(INTENTS), 4), 1)
    assert alarms[0.9] == (0, 0, 0)
    assert english.innocent == 2


def test_bands_tell_how_often_a_score_is_right():
    english, _ = judged().languages
    assert [(band.begin, band.count, band.right) for band in english.bands] == [
        (0.0, 0, 0),
        (0.5, 0, 0),
        (0.7, COUNT, COUNT - 2),
        (0.9, 0, 0),
    ]
    assert english.bands[2].mean_score == pytest.approx(np.e**5 / (np.e**5 + COUNT - 1), abs=1e-4)


def test_what_is_saved_is_json_and_is_read_again(tmp_path):
    found = judged()
    found.save(tmp_path / "evaluation.json")
    assert evaluation.load(tmp_path / "evaluation.json") == found
    assert json.loads((tmp_path / "evaluation.json").read_text())["languages"][0]["accuracy"] == pytest.approx(
        1 - 2 / COUNT, abs=1e-4
    )
