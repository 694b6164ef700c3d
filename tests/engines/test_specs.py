"""engines/specs.py: the shipped file, and the words for wrong ones."""

import pytest

from bls.tiers import tiers
from engines import specs
from engines.specs import BadSpec, Spec
from tests.fakes import engine_folders

GOOD = '[small]\nsource = "a==1"\n[large]\nsource = "b==2"\ncontext_tokens = 100\n'


def load(tmp_path, text):
    file = tmp_path / "specs.toml"
    file.write_text(text)
    return specs.load(file, engine_folders(tmp_path / "model_repository"))


def test_the_shipped_specs_are_right():
    assert set(specs.load()) == set(tiers())


def test_both_tiers_are_read(tmp_path):
    assert load(tmp_path, GOOD) == {"small": Spec("a==1"), "large": Spec("b==2", 100)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace("source", "sourse", 1),
            r"specs.toml: \[small\] has 'sourse'; known: source, context_tokens, tensorrt_llm",
        ),
        (GOOD.replace("large", "lagre"), "specs.toml has 'lagre'; known: small, large"),
        ('[small]\nsource = "a==1"\n', r"specs.toml: \[large\] is missing"),
        (GOOD.replace('"a==1"', "1"), r"\[small\] source must be a string"),
        (GOOD.replace("100", "0"), r"\[large\] context_tokens is 0; it must be a whole number above 0"),
        (GOOD.replace("100", "true"), r"\[large\] context_tokens is True"),
        ("[small", "specs.toml: "),
        ("small = 1\nlarge = 2\n", r"\[small\] must be a table"),
    ],
)
def test_a_wrong_spec_is_refused_by_name(tmp_path, text, message):
    with pytest.raises(BadSpec, match=message):
        load(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadSpec, match=r"none\.toml"):
        specs.load(tmp_path / "none.toml")
