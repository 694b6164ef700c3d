"""Small tokenizers of each kind, trained here within a second, and files as they lie in a built engine's folder."""

from __future__ import annotations

import io
import json
import struct
from functools import cache
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bls.manifest import Manifest, TokenizerFile
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.sentencepiece_tokenizer import SentencePieceTokenizer
from bls.tokens.tokenizer import Settings

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "def add(first, second):\n    return first + second  # 1234567890",
    "今天天气很好,我们去公园散步吧。你好,世界!",
    "Grüße aus München, où ça va très bien; привет, мир. 한국어 ひらがな カタカナ",
    "🙂 👨‍👩‍👧‍👦 🇫🇷 👍🏽 are emoji; the end.",
    "words    with   runs of      spaces\tand tabs\n\n\nand lines",
] * 20

# What users send: scripts, emoji of several code points, code, white space, special tokens, broken-looking text.
SNIPPETS = [
    "The quick", " brown fox", "你好", "世界", "𠮷野家", "🙂", "👨‍👩‍👧‍👦", "👍🏽", "🇫🇷",
    "  ", "      ", "\n", "\n\n", "\t", "\r\n",
    "def f(x):\n    return x + 1", "1234567890", "3.14", "don't", "I'LL", "é", "e\u0301", "«»", "http://a.b/c?d=1&e=2",
    "\u00a0", "\u3000", "ß", "Ωμέγα", "ひらがな", "한국어", "हिन्दी", "עברית", "...", "```", "#", "_",
    "A" * 30, " " * 17,
    "\u200b", "\x00", "\x7f", "½", "²", "٣", "\ufffd", "</s>", "<s>",
    "<|im_end|>", "<|im_start|>user\n", "<|endoftext|>",
]  # fmt: skip

SPECIAL = ["<|end|>", "<|begin|>"]


@cache
def byte_level() -> FastTokenizer:
    """Like GPT-2, Llama 3 and Qwen."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(CORPUS, trainer)
    core.add_tokens(["<think>", "an added token", "追加"])
    return FastTokenizer(core, Settings(bos_token="<|begin|>", eos_token="<|end|>", adds_bos=True))


@cache
def llama_like() -> FastTokenizer:
    """Like a Hugging Face Llama 2: spaces are U+2581, bytes are tokens, a BOS is added by the post-processor."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    ascii_only = [text for text in CORPUS if text.isascii()]  # All else becomes byte tokens.
    trained.train_from_iterator(ascii_only, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    merges = [tuple(merge) for merge in model["merges"]]
    vocabulary = {name: index for index, name in enumerate(names)}
    core = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.normalizer = trained.normalizer
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens(["<unk>", "<s>", "</s>"])
    return FastTokenizer(core, Settings(bos_token="<s>", eos_token="</s>"))


@cache
def gemma_like() -> FastTokenizer:
    """The same vocabulary, but no space is put before a text, nor taken off it."""
    core = tokenizers.Tokenizer.from_str(llama_like().core.to_str())
    core.normalizer = normalizers.Replace(" ", "▁")
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return FastTokenizer(core, llama_like().settings)


@cache
def sentencepiece_model(**options: object) -> bytes:
    """A tokenizer.model like Llama 2's, unless `options` say otherwise."""
    settings: dict[str, object] = {
        "vocab_size": 700, "model_type": "bpe", "byte_fallback": True, "character_coverage": 0.98,
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": True,
        "control_symbols": ["<|im_start|>", "<|im_end|>"], "user_defined_symbols": ["<think>"],
        "hard_vocab_limit": False, "minloglevel": 2,
    } | options  # fmt: skip
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, **settings)
    return model.getvalue()


@cache
def sentencepiece_like_llama() -> SentencePieceTokenizer:
    return SentencePieceTokenizer(sentencepiece_model(), Settings())


@cache
def sentencepiece_that_strips() -> SentencePieceTokenizer:
    """Takes all leading spaces off a text, as SentencePiece does by default."""
    model = sentencepiece_model(remove_extra_whitespaces=True, normalization_rule_name="nmt_nfkc", model_type="unigram")
    return SentencePieceTokenizer(model, Settings())


@cache
def sentencepiece_without_prefix() -> SentencePieceTokenizer:
    return SentencePieceTokenizer(sentencepiece_model(add_dummy_prefix=False), Settings())


ALL = {
    "byte_level": byte_level,
    "llama_like": llama_like,
    "gemma_like": gemma_like,
    "sentencepiece_like_llama": sentencepiece_like_llama,
    "sentencepiece_that_strips": sentencepiece_that_strips,
    "sentencepiece_without_prefix": sentencepiece_without_prefix,
}


def write_manifest(
    folder: Path, kind: str, path: str, end_ids: tuple[int, ...] = (2,), vocab_size: int = 1000
) -> Manifest:
    """engine.json for a tokenizer that lies in `folder`; there are no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = TokenizerFile(kind, path, sha256=f"of {path} in {folder.name}")
    manifest = Manifest(folder, "tiny", "none", "none", 512, vocab_size, end_ids, 0, tokenizer)
    manifest.save()
    return manifest


def write_gguf(path: Path, metadata: dict[str, object]) -> Path:
    """A GGUF file of version 3 without tensors."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    path.write_bytes(head + b"".join(_gguf_string(key) + _gguf_typed(value) for key, value in metadata.items()))
    return path


def _gguf_typed(value: object) -> bytes:
    kind, data = _gguf_value(value)
    return struct.pack("<I", kind) + data


def _gguf_value(value: object) -> tuple[int, bytes]:
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 5, struct.pack("<i", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return 8, _gguf_string(value)
        case list():
            items = [_gguf_value(item) for item in value]
            head = struct.pack("<IQ", items[0][0] if items else 8, len(items))
            return 9, head + b"".join(data for _, data in items)
    raise TypeError(type(value))


def _gguf_string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
