import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models

from bls.tokens import byte_table, byte_table_build
from bls.tokens.byte_table import BYTE, SPECIAL, TEXT, BadByteTable, TokenBytes
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.stream_decoder import WindowDecoder
from bls.tokens.tokenizer import Settings
from tests import small_tokenizers

KINDS = sorted(small_tokenizers.ALL)
TABLES: dict[str, TokenBytes] = {}


def table_of(kind):
    if kind not in TABLES:
        TABLES[kind] = TokenBytes(byte_table_build.build(small_tokenizers.ALL[kind](), "digest"))
    return TABLES[kind]


def pieces_of(decoder, ids, cuts):
    """The pieces of a stream that is cut before each of `cuts`."""
    edges = [0, *sorted(cuts), len(ids)]
    pushed = [decoder.push(ids[begin:end]) for begin, end in pairwise(edges)]
    return [*pushed, decoder.finish()]


def ids_of_a_kind(kind):
    """Any ids; bytes and special tokens, those that begin with a space, and a lone space are as likely as the rest."""
    tokenizer, table = small_tokenizers.ALL[kind](), table_of(kind)
    every = range(-2, tokenizer.vocab_size + 3)
    few = [token for token in every if table.kind(token) in (BYTE, SPECIAL)]
    spaced = [token for token in every if table.kind(token) == TEXT and table.piece(token).startswith(b" ")]
    blank = [token for token in spaced if table.piece(token) == b" "]
    pool = [*every, *(token for some in (few, spaced, blank) for token in some * (len(every) // len(some)))]
    return st.lists(st.sampled_from(pool), max_size=30)


@pytest.mark.parametrize("kind", KINDS)
def test_joined_pieces_are_the_whole_decode_for_any_ids_and_any_cut(kind):
    tokenizer, table = small_tokenizers.ALL[kind](), table_of(kind)
    assert table.is_supported, table.header.reason

    @settings(max_examples=1000, deadline=None)
    @given(ids=ids_of_a_kind(kind), skips=st.booleans(), cuts=st.lists(st.integers(0, 30), max_size=6))
    def holds(ids, skips, cuts):
        pieces = pieces_of(table.decoder(skips), ids, [min(cut, len(ids)) for cut in cuts])
        assert "".join(pieces) == tokenizer.decode(ids, skips)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_valid_text_comes_back_whole_and_never_shows_a_broken_character(kind):
    tokenizer, table = small_tokenizers.ALL[kind](), table_of(kind)
    chance = random.Random(1)
    for _ in range(1000):
        text = "".join(chance.choices(small_tokenizers.SNIPPETS, k=chance.randint(1, 8))).replace("\ufffd", "")
        ids = tokenizer.encode(text, add_special_tokens=True)
        pieces = pieces_of(table.decoder(), ids, range(1, len(ids)))
        assert not any("\ufffd" in piece for piece in pieces), text
        assert "".join(pieces) == tokenizer.decode(ids)


def test_a_piece_is_given_as_soon_as_its_characters_are_whole():
    tokenizer, decoder = small_tokenizers.byte_level(), table_of("byte_level").decoder()
    ids = [
        tokenizer.core.token_to_id(letter) for letter in "ðŁĻĤ"
    ]  # The four bytes of one emoji, as GPT-2 spells them.
    assert [decoder.push([token]) for token in ids] == ["", "", "", "🙂"]
    assert decoder.finish() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_an_emoji_cut_short_is_flushed_once(kind):
    tokenizer, table = small_tokenizers.ALL[kind](), table_of(kind)
    ids = tokenizer.encode("ok 🦖", add_special_tokens=False)[:-1]
    pieces = pieces_of(table.decoder(), ids, range(1, len(ids)))
    assert "\ufffd" not in "".join(pieces[:-1])
    assert "".join(pieces) == tokenizer.decode(ids)
    assert "\ufffd" in pieces[-1]


def test_hugging_face_breaks_a_whole_run_of_bytes_and_sentencepiece_each_bad_byte():
    for kind, expected in (("llama_like", "\ufffd" * 4), ("sentencepiece_like_llama", "你\ufffd")):
        tokenizer = small_tokenizers.ALL[kind]()
        ids = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in (*"你".encode(), 0xFF)]
        assert tokenizer.decode(ids) == expected
        assert "".join(pieces_of(table_of(kind).decoder(), ids, range(1, 4))) == expected


def test_special_tokens_show_only_when_asked_for():
    tokenizer, table = small_tokenizers.byte_level(), table_of("byte_level")
    ids = tokenizer.encode("one<|end|>two", add_special_tokens=False)
    assert table.decoder().push(ids) == "onetwo"
    assert table.decoder(skip_special_tokens=False).push(ids) == "one<|end|>two"


def test_numpy_ids_are_taken_as_well():
    ids = small_tokenizers.byte_level().encode("The quick", add_special_tokens=False)
    assert table_of("byte_level").decoder().push(np.array(ids, np.int32)) == "The quick"


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.Metaspace()])
def test_a_decoder_that_no_table_can_stand_for_is_said_to_be_unsupported(decoder):
    core = Core(models.WordLevel({"<unk>": 0, "▁a": 1, "##b": 2}, unk_token="<unk>"))
    if decoder is not None:
        core.decoder = decoder
    table = TokenBytes(byte_table_build.build(FastTokenizer(core, Settings()), "digest"))
    assert not table.is_supported
    assert table.header.reason
    with pytest.raises(BadByteTable, match="no table for this tokenizer"):
        table.decoder()


class _OneLiar(FastTokenizer):
    """Decodes one token in a way of its own."""

    def decode(self, ids, skip_special_tokens=True):
        return super().decode(ids, skip_special_tokens).replace("fox", "cat")


def test_a_table_that_differs_from_its_tokenizer_in_one_token_is_not_used():
    source = small_tokenizers.byte_level()
    liar = _OneLiar(source.core, source.settings)
    assert not TokenBytes(byte_table_build.build(liar, "digest")).is_supported


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_decodes_valid_text_as_the_table_does(kind):
    tokenizer = small_tokenizers.ALL[kind]()
    chance = random.Random(2)
    for _ in range(300):
        text = "".join(chance.choices(small_tokenizers.SNIPPETS, k=chance.randint(1, 8))).replace("\ufffd", "")
        ids = tokenizer.encode(text, add_special_tokens=True)
        size = chance.choice([1, 2, 8])
        pieces = pieces_of(WindowDecoder(tokenizer.decode), ids, range(size, len(ids), size))
        assert "".join(pieces) == tokenizer.decode(ids)
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_window_asks_for_no_more_tokens_the_longer_an_answer_is():
    tokenizer = small_tokenizers.llama_like()
    ids = tokenizer.encode(" the dog 🦖" * 200, add_special_tokens=False)
    asked = []
    window = WindowDecoder(lambda some: asked.append(len(some)) or tokenizer.decode(some))
    text = "".join(window.push([token]) for token in ids) + window.finish()
    assert text == tokenizer.decode(ids)
    assert max(asked) <= 8


def test_a_table_is_built_once_and_again_for_another_tokenizer(tmp_path):
    source = small_tokenizers.byte_level()
    manifest = small_tokenizers.write_manifest(tmp_path, "huggingface", "tokenizer.json")
    byte_table_build.ensure(manifest, source)
    written = manifest.token_bytes_path.stat().st_mtime_ns
    assert byte_table_build.ensure(manifest, source).is_supported
    assert manifest.token_bytes_path.stat().st_mtime_ns == written
    other = small_tokenizers.write_manifest(tmp_path, "huggingface", "other.json")
    with pytest.raises(BadByteTable, match="another tokenizer"):
        byte_table.open_table(manifest.token_bytes_path, other.tokenizer.sha256)
    assert byte_table_build.ensure(other, source).header.sha256 == other.tokenizer.sha256
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data[1:], lambda data: data[:20]])
def test_a_damaged_table_is_refused_and_built_anew(tmp_path, damage):
    source = small_tokenizers.byte_level()
    manifest = small_tokenizers.write_manifest(tmp_path, "huggingface", "tokenizer.json")
    byte_table_build.ensure(manifest, source)
    manifest.token_bytes_path.write_bytes(damage(manifest.token_bytes_path.read_bytes()))
    with pytest.raises(BadByteTable, match="not a readable token table"):
        byte_table.open_table(manifest.token_bytes_path)
    assert byte_table_build.ensure(manifest, source).is_supported


def test_a_missing_table_says_who_builds_it(tmp_path):
    with pytest.raises(BadByteTable, match=r"token_bytes\.bin is missing.*preprocessing"):
        byte_table.open_table(tmp_path / "token_bytes.bin")


def test_the_router_needs_no_tokenizer_library_to_read_a_table():
    code = "import sys, bls.tokens.byte_table; print({'tokenizers', 'sentencepiece', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
