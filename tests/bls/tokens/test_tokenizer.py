import json
import random
from dataclasses import replace

import openvino_genai
import pytest

from bls import manifest
from bls.paths import ROOT
from bls.tokens import gguf, tokenizer_files
from bls.tokens.chat_template import Chat
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.sentencepiece_tokenizer import SentencePieceTokenizer
from bls.tokens.tokenizer import BadTokenizer, Settings
from tests import small_tokenizers
from tests.openvino_signals import signals_find_their_stack_after_openvino  # noqa: F401

SMOLLM2 = ROOT / "engines" / "built" / "small"
GOLDENS = json.loads((ROOT / "tests" / "data" / "chat_goldens.json").read_text(encoding="utf-8"))
TEXTS = [
    *small_tokenizers.SNIPPETS,
    *("".join(random.Random(seed).choices(small_tokenizers.SNIPPETS, k=2 + seed % 9)) for seed in range(1500)),
]


@pytest.fixture(scope="module")
def smollm2():
    if not (SMOLLM2 / manifest.FILE_NAME).is_file():
        pytest.skip("the default engine is not built: python -m scripts.build_engines")
    return tokenizer_files.load(manifest.load(SMOLLM2))


def huggingface_folder(folder, source, config):
    """A folder as transformers saves it."""
    folder.mkdir(exist_ok=True)
    source.core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def byte_level_metadata(**changes):
    """The GGUF metadata of the small byte-level tokenizer."""
    source = small_tokenizers.byte_level()
    model = json.loads(source.core.to_str())["model"]
    tokens = [source.core.id_to_token(token) for token in range(source.vocab_size)]
    types = [3 if token in source.special_ids else 4 if token not in model["vocab"] else 1 for token in tokens]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": source.bos_id,
        "tokenizer.ggml.eos_token_id": source.eos_id,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    } | changes


def sentencepiece_metadata(**changes):
    core = small_tokenizers.sentencepiece_like_llama().core
    kinds = {"is_unknown": 2, "is_control": 3, "is_unused": 5, "is_byte": 6}
    ids = range(core.get_piece_size())
    types = [next((kind for test, kind in kinds.items() if getattr(core, test)(token)), 1) for token in ids]
    types[core.piece_to_id("<think>")] = 4
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [core.id_to_piece(token) for token in ids],
        "tokenizer.ggml.scores": [float(core.get_score(token)) for token in ids],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": core.unk_id(),
        "tokenizer.ggml.bos_token_id": core.bos_id(),
        "tokenizer.ggml.eos_token_id": core.eos_id(),
    } | changes


# The default model.


def test_smollm2_has_the_ids_of_openvinos_own_tokenizer(smollm2):
    theirs = openvino_genai.Tokenizer(str(SMOLLM2 / manifest.load(SMOLLM2).tokenizer.path))
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
        assert smollm2.encode(text, add_special_tokens=False) == ids, text


def test_smollm2_gives_each_text_back(smollm2):
    for text in TEXTS:
        assert smollm2.decode(smollm2.encode(text, add_special_tokens=True), skip_special_tokens=False) == text


def test_smollm2_wants_no_bos_and_knows_its_special_tokens(smollm2):
    assert smollm2.encode("hi", add_special_tokens=True) == smollm2.encode("hi", add_special_tokens=False)
    assert (smollm2.bos_id, smollm2.eos_id, smollm2.vocab_size) == (1, 2, 49152)
    assert smollm2.special_ids["<|endoftext|>"] == 0


@pytest.mark.parametrize("golden", [golden for golden in GOLDENS if golden.get("ids")])
def test_smollm2_chats_have_the_ids_of_hugging_faces_apply_chat_template(smollm2, golden):
    told = replace(smollm2.settings, chat_template=golden["source"])
    assert Chat(FastTokenizer(smollm2.core, told)).encode(golden["messages"], golden["values"]) == golden["ids"]


# One BOS.


@pytest.mark.parametrize("kind", ["byte_level", "llama_like", "sentencepiece_like_llama"])
def test_a_prompt_has_exactly_one_bos(kind):
    source = small_tokenizers.ALL[kind]()
    plain = source.encode("hi there", add_special_tokens=True)
    assert plain == [source.bos_id, *source.encode("hi there", add_special_tokens=False)]
    assert plain.count(source.bos_id) == 1
    written = source.encode(f"{source.settings.bos_token}hi there", add_special_tokens=True)
    assert (written[0], written.count(source.bos_id)) == (source.bos_id, 1)
    assert source.encode("", add_special_tokens=True) == [source.bos_id]


@pytest.mark.parametrize(("adds_bos", "count"), [(True, 1), (False, 0), (None, 1)])
def test_a_tokenizers_own_setting_decides_whether_a_bos_is_added(tmp_path, adds_bos, count):
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    config |= {} if adds_bos is None else {"add_bos_token": adds_bos}
    huggingface_folder(tmp_path, small_tokenizers.llama_like(), config)
    loaded = tokenizer_files.load_file("huggingface", tmp_path)
    assert loaded.encode("hi", add_special_tokens=True).count(loaded.bos_id) == count


# Words.


@pytest.mark.parametrize("kind", sorted(small_tokenizers.ALL))
@pytest.mark.parametrize("word", ["fox", "END", "你好", "🦖", "###", " dog"])
def test_a_word_is_spelt_as_it_stands_amid_a_text(kind, word):
    source = small_tokenizers.ALL[kind]()
    spellings = source.encode_word(word)
    assert spellings
    for ids in spellings:
        assert source.bos_id not in ids
    within = source.encode(f"\n{word}", add_special_tokens=False)
    assert any(within[-len(ids) :] == ids for ids in spellings)


@pytest.mark.parametrize("kind", ["byte_level", "llama_like", "sentencepiece_like_llama"])
def test_empty_lines_as_a_word_are_spelt_as_after_a_sentence(kind):
    source = small_tokenizers.ALL[kind]()
    within = source.encode("dog.\n\n", add_special_tokens=False)
    assert any(within[-len(ids) :] == ids for ids in source.encode_word("\n\n"))


def test_a_word_has_a_spelling_with_a_space_before_it_only_where_the_tokenizer_adds_one():
    spellings = small_tokenizers.sentencepiece_like_llama().encode_word("fox")
    texts = [small_tokenizers.sentencepiece_like_llama().core.id_to_piece(ids) for ids in spellings]
    assert sorted("".join(pieces) for pieces in texts) == ["fox", "▁fox"]
    assert len(small_tokenizers.byte_level().encode_word("fox")) == 1


def test_an_empty_word_has_no_spelling_and_a_special_token_is_one_id():
    source = small_tokenizers.byte_level()
    assert source.encode_word("") == []
    assert source.encode_word("<|end|>") == [[source.eos_id]]


# Special tokens and ids beyond.


@pytest.mark.parametrize("kind", ["byte_level", "llama_like", "sentencepiece_like_llama"])
def test_a_special_tokens_name_is_only_characters_to_encode_literally(kind):
    source = small_tokenizers.ALL[kind]()
    text = f"a {source.settings.eos_token} b"
    assert source.eos_id in source.encode(text, add_special_tokens=False)
    literal = source.encode_literally(text)
    assert source.eos_id not in literal
    assert source.decode(literal) == text


@pytest.mark.parametrize("kind", sorted(small_tokenizers.ALL))
def test_ids_outside_of_the_vocabulary_are_left_out(kind):
    source = small_tokenizers.ALL[kind]()
    ids = source.encode("The quick", add_special_tokens=False)
    beyond = [-1, source.vocab_size, 2**31 - 1]
    assert source.decode([*beyond, *ids, *beyond]) == source.decode(ids)


def test_sentencepiece_shows_control_pieces_only_when_asked_for():
    source = small_tokenizers.sentencepiece_like_llama()
    ids = source.encode("<s>The fox<|im_end|> the dog", add_special_tokens=False)
    assert source.decode(ids) == source.core.decode(ids)
    assert "<" not in source.decode(ids)
    assert source.decode(ids, skip_special_tokens=False) == "<s>The fox<|im_end|> the dog"


# Files.


def test_a_hugging_face_folder_brings_its_tokens_and_its_template(tmp_path):
    config = {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "chat_template": "from the config"}
    huggingface_folder(tmp_path, small_tokenizers.byte_level(), config)
    loaded = tokenizer_files.load_file("huggingface", tmp_path)
    assert (loaded.bos_id, loaded.eos_id) == (1, 0)
    assert loaded.chat_template == "from the config"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "the default one"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert tokenizer_files.load_file("huggingface", tmp_path).chat_template == "the default one"
    (tmp_path / "chat_template.jinja").write_text("from its own file")
    assert tokenizer_files.load_file("huggingface", tmp_path / "tokenizer.json").chat_template == "from its own file"


def test_padding_and_truncation_saved_with_a_tokenizer_are_not_applied(tmp_path):
    source = tokenizer_files.load_file("huggingface", huggingface_folder(tmp_path, small_tokenizers.byte_level(), {}))
    source.core.enable_truncation(4)
    source.core.enable_padding(length=64)
    source.core.save(str(tmp_path / "tokenizer.json"))
    loaded = tokenizer_files.load_file("huggingface", tmp_path)
    text = "The quick brown fox jumps over the lazy dog"
    assert loaded.encode(text, False) == small_tokenizers.byte_level().encode(text, False)


def test_a_tokenizer_model_is_read_with_what_lies_beside_it(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(small_tokenizers.sentencepiece_model())
    (tmp_path / "chat_template.jinja").write_text("beside it")
    loaded = tokenizer_files.load_file("sentencepiece", tmp_path)
    assert (loaded.settings.bos_token, loaded.settings.eos_token, loaded.chat_template) == ("<s>", "</s>", "beside it")


def test_a_gguf_of_a_byte_level_bpe_has_the_ids_of_its_origin(tmp_path):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", byte_level_metadata())
    loaded, origin = tokenizer_files.load_file("gguf", path), small_tokenizers.byte_level()
    assert (loaded.bos_id, loaded.eos_id) == (origin.bos_id, origin.eos_id)
    assert loaded.chat_template == "{{ messages[0].content }}"
    for text in TEXTS:
        assert loaded.encode(text, False) == origin.encode(text, False), text
        assert loaded.decode(loaded.encode(text, False), False) == text


def test_a_gguf_of_a_sentencepiece_model_has_the_ids_of_its_origin(tmp_path):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", sentencepiece_metadata())
    loaded, origin = tokenizer_files.load_file("gguf", path), small_tokenizers.sentencepiece_like_llama()
    assert isinstance(loaded, SentencePieceTokenizer)
    assert loaded.special_ids == origin.special_ids
    for text in TEXTS:
        ids = loaded.encode(text, add_special_tokens=True)
        assert ids == origin.encode(text, add_special_tokens=True), text
        assert loaded.decode(ids) == origin.decode(ids)


@pytest.mark.parametrize(
    ("changes", "wants_bos"),
    [
        ({}, False),
        ({"tokenizer.ggml.pre": "llama-bpe"}, True),
        ({"tokenizer.ggml.add_bos_token": True}, True),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, False),
    ],
)
def test_a_gguf_that_does_not_say_follows_llama_cpps_rule_of_the_bos(tmp_path, changes, wants_bos):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", byte_level_metadata(**changes))
    loaded = tokenizer_files.load_file("gguf", path)
    assert (loaded.encode("hi", add_special_tokens=True)[0] == loaded.bos_id) is wants_bos


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        # Digits one by one, in threes, one by one, in a row; what belongs to a word; how line ends stick.
        ("smollm", "ab 123 's", ["ab", "Ġ", "1", "2", "3", "Ġ'", "s"]),
        ("llama-bpe", "ab 12345\n\n we'LL", ["ab", "Ġ", "123", "45", "ĊĊ", "Ġwe", "'LL"]),
        ("qwen2", "ab 12345\n\n we'LL", ["ab", "Ġ", "1", "2", "3", "4", "5", "ĊĊ", "Ġwe", "'LL"]),
        ("gpt-2", "ab 12345\n\n we'LL", ["ab", "Ġ12345", "ĊĊ", "Ġwe", "'", "LL"]),
        ("default", "a?!\n", ["a", "?!", "Ċ"]),
        ("llama-bpe", "a?!\n", ["a", "?!Ċ"]),
    ],
)
def test_each_pre_tokenizer_cuts_as_its_models_do(tmp_path, pre, text, pieces):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", byte_level_metadata(**{"tokenizer.ggml.pre": pre}))
    cut = tokenizer_files.load_file("gguf", path).core.pre_tokenizer.pre_tokenize_str(text)
    assert [piece for piece, _ in cut] == pieces


def test_qwen2_composes_characters_as_its_own_tokenizer_does(tmp_path):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", byte_level_metadata(**{"tokenizer.ggml.pre": "qwen2"}))
    loaded = tokenizer_files.load_file("gguf", path)
    assert loaded.encode("e\u0301", False) == loaded.encode("é", False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokenizer.ggml.model": "bert"}, r"model\.gguf: tokenizer\.ggml\.model is 'bert'; known: 'gpt2', 'llama'"),
        ({"tokenizer.ggml.pre": "deepseek-llm"}, r"model\.gguf: tokenizer\.ggml\.pre is 'deepseek-llm'; known: gpt-2"),
    ],
)
def test_a_gguf_tokenizer_that_is_not_known_is_refused_by_its_name(tmp_path, changes, complaint):
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", byte_level_metadata(**changes))
    with pytest.raises(BadTokenizer, match=complaint):
        tokenizer_files.load_file("gguf", path)


def test_a_gguf_without_merges_says_what_is_missing(tmp_path):
    metadata = byte_level_metadata()
    del metadata["tokenizer.ggml.merges"]
    path = small_tokenizers.write_gguf(tmp_path / "model.gguf", metadata)
    with pytest.raises(BadTokenizer, match=r"model\.gguf: it has no tokenizer\.ggml\.merges"):
        tokenizer_files.load_file("gguf", path)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGML" + bytes(40), b"GGUF\x03\0\0\0" + b"\xff" * 16])
def test_a_file_that_is_no_gguf_is_refused_by_its_name(tmp_path, data):
    (tmp_path / "model.gguf").write_bytes(data)
    with pytest.raises(BadTokenizer, match=r"^model\.gguf is not a readable GGUF file"):
        tokenizer_files.load_file("gguf", tmp_path / "model.gguf")


@pytest.mark.parametrize("kind", ["gguf", "huggingface", "sentencepiece"])
def test_a_missing_or_damaged_file_is_refused_by_its_name(tmp_path, kind):
    with pytest.raises(BadTokenizer, match="thing"):
        tokenizer_files.load_file(kind, tmp_path / "thing")
    (tmp_path / "thing").write_bytes(b"not a tokenizer")
    with pytest.raises(BadTokenizer, match="thing"):
        tokenizer_files.load_file(kind, tmp_path / "thing")


def test_gguf_metadata_of_every_type_is_read(tmp_path):
    metadata = {"a": True, "b": -5, "c": 0.5, "d": "你好", "e": [1, 2], "f": ["x", ""], "g": [], "h": [[1], [2, 3]]}
    assert gguf.read_metadata(small_tokenizers.write_gguf(tmp_path / "m.gguf", metadata)) == metadata


def test_the_digest_tells_tokenizers_apart_but_not_their_weights(tmp_path):
    first, second, third = (tmp_path / f"{n}.gguf" for n in range(3))
    small_tokenizers.write_gguf(first, byte_level_metadata())
    small_tokenizers.write_gguf(second, byte_level_metadata(**{"general.architecture": "qwen2"}))
    small_tokenizers.write_gguf(third, byte_level_metadata(**{"tokenizer.chat_template": "another"}))
    digests = [tokenizer_files.digest("gguf", path) for path in (first, second, third)]
    assert digests[0] == digests[1] != digests[2]
    folder = huggingface_folder(tmp_path / "hf", small_tokenizers.byte_level(), {})
    before = tokenizer_files.digest("huggingface", folder)
    assert tokenizer_files.digest("huggingface", folder / "tokenizer.json") == before
    (folder / "chat_template.jinja").write_text("another")
    assert tokenizer_files.digest("huggingface", folder) != before


def test_settings_of_a_sentencepiece_model_may_be_overruled():
    model = small_tokenizers.sentencepiece_model()
    loaded = SentencePieceTokenizer(model, Settings(eos_token="<|im_end|>", adds_bos=False))
    assert loaded.eos_id == loaded.special_ids["<|im_end|>"]
    assert loaded.bos_id not in loaded.encode("hi", add_special_tokens=True)
