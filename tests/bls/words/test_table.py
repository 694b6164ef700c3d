"""Where a server's compiled lists lie."""

import pytest

from bls.paths import WORDS_VARIABLE
from bls.words.compiler import compile_lists
from bls.words.lists import Category, Word, WordLists
from bls.words.table import BadWordTable, words_beside


def compiled(folder, word):
    folder.mkdir(parents=True)
    lists = WordLists({"rude": [Word(word, folder, 1)]}, [], {"rude": Category("rude")})
    return compile_lists(lists, folder / "compiled.bin")


def test_they_lie_beside_the_model_repository_in_it_or_where_the_variable_says(tmp_path, monkeypatch):
    models = tmp_path / "models"
    versions = [
        compiled(folder, word)
        for folder, word in (
            (tmp_path / "words", "beside"),
            (models / "llm_router" / "files" / "words", "packed"),
            (tmp_path / "mine", "mine"),
        )
    ]
    monkeypatch.delenv(WORDS_VARIABLE, raising=False)
    assert words_beside(tmp_path / "other").table().version == versions[0]
    assert words_beside(models).table().version == versions[1]
    monkeypatch.setenv(WORDS_VARIABLE, str(tmp_path / "mine"))
    assert words_beside(models).table().version == versions[2]
    monkeypatch.setenv(WORDS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(BadWordTable, match=r"none/compiled\.bin"):
        words_beside(models)
