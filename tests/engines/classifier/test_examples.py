"""engines/classifier/examples.py and the prompts that are shipped."""

import json

import pytest

from bls.paths import ROOT
from engines.classifier import examples
from engines.classifier.examples import BadExamples
from engines.classifier.labels import HARD, INTENTS, LABELS, RISKS

FITTED, HELD_OUT = (examples.load(folder, LABELS) for folder in (examples.FITTED, examples.HELD_OUT))


OTHERS = ("de", "fr", "es", "pt", "ru", "ja", "ko", "ar")


def count(found, number, language):
    return sum(kind == number and code == language for kind, code in zip(found.classes, found.languages, strict=True))


SHIPPED = json.loads((ROOT / "docs" / "classifier.json").read_text())["labels"]


@pytest.mark.parametrize("label", sorted({*SHIPPED} & {*LABELS}))
def test_every_shipped_class_has_enough_prompts(label):
    number = LABELS.index(label)
    assert count(FITTED, number, "en") >= 40 and count(FITTED, number, "zh") >= 20
    assert count(HELD_OUT, number, "en") >= 10 and count(HELD_OUT, number, "zh") >= 10
    for language in OTHERS:
        assert count(FITTED, number, language) >= 3 and count(HELD_OUT, number, language) >= 2


def test_no_prompt_is_there_twice_and_none_is_fitted_that_judges():
    innocent = tuple(text for text, _ in examples.prompts(examples.INNOCENT))
    plain = [" ".join(text.lower().split()) for text in FITTED.texts + HELD_OUT.texts + innocent]
    assert sorted(plain) == sorted(set(plain))


def test_each_class_is_either_an_intent_or_a_risk():
    assert len(set(LABELS)) == len(LABELS)
    assert set(INTENTS).isdisjoint(RISKS) and set(HARD) < set(INTENTS)


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_empty_lines_and_comments_are_no_prompts(tmp_path):
    found = examples.load(write(tmp_path, a="# first\n\n one \nC# or Java?\n", b="hello\n"), ("a", "b"))
    assert found == examples.Examples(("one", "C# or Java?", "hello"), (0, 0, 1), ("en", "en", "en"))


def test_a_code_in_brackets_is_the_language_of_what_follows(tmp_path):
    found = examples.load(write(tmp_path, a="one\n[zh]\n你好\n[INST] is no code\n[de]\nhallo\n", b="two\n"), ("a", "b"))
    assert found.texts == ("one", "你好", "[INST] is no code", "hallo", "two")
    assert found.languages == ("en", "zh", "zh", "de", "en")


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"a": "x"}, r"/b\.txt is missing"),
        ({"a": "x", "b": "# nothing\n"}, r"/b\.txt holds no prompt"),
        ({"a": "x", "b": "y", "c": "z"}, r"/c\.txt belongs to no class; known: a, b"),
        ({"a": "x", "b": b"yes\xff"}, r"/b\.txt is not valid UTF-8 \(byte 3\)"),
    ],
)
def test_what_is_wrong_with_the_files_is_named(tmp_path, files, complaint):
    with pytest.raises(BadExamples, match=complaint):
        examples.load(write(tmp_path, **files), ("a", "b"))


def test_the_digest_is_the_contents(tmp_path):
    before = examples.digest(write(tmp_path, a="x", b="y"))
    assert examples.digest(tmp_path) == before
    assert examples.digest(write(tmp_path, b="z")) != before
