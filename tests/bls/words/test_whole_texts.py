"""bls/words/whole_texts.py: whole texts in, whole texts out."""

import numpy as np
import pytest

from bls.errors import BadRequest
from bls.words.compiler import compile_folder
from bls.words.table import NewestTable
from bls.words.whole_texts import TextFilter

OUTPUT = frozenset({"filtered_text"})


@pytest.fixture
def words(tmp_path):
    (tmp_path / "deny").mkdir()
    (tmp_path / "deny" / "listed.txt").write_text("secret\n")
    compile_folder(tmp_path, tmp_path / "compiled.bin")
    return NewestTable(tmp_path / "compiled.bin")


def filtered(text_filter, *rows):
    given = np.array([[row if isinstance(row, bytes) else row.encode()] for row in rows], np.object_)
    output = text_filter.answer({"text": given}, OUTPUT)["filtered_text"]
    assert output.shape == (len(rows),)
    return [value.decode() for value in output]


def test_listed_words_are_hidden_in_each_row(words):
    assert filtered(TextFilter(words), "a secret here", "nothing", "SECRET") == ["a ****** here", "nothing", "******"]


def test_without_lists_texts_pass(words):
    assert filtered(TextFilter(None), "a secret here") == ["a secret here"]


def test_a_text_that_is_not_utf8_is_refused(words):
    with pytest.raises(BadRequest, match="text is not valid UTF-8"):
        filtered(TextFilter(words), b"\xff")
