"""A BERT of a few hundred weights, the files of its model, and its mathematics spelt out with numpy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from engines.classifier.labels import LABELS
from engines.classifier.manifest import TextManifest

WIDTH, HEADS, LAYERS, INNER, POSITIONS, MAX_TOKENS = 8, 2, 2, 12, 32, 24
EPSILON = 1e-12
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("the", "cat", "sat", "on", "a", "mat", "where", "is", "my", "hat", "##s", "##ing", ".", "?")
WORDS_AND_SPECIAL = len(SPECIAL + WORDS)
VOCABULARY = {word: number for number, word in enumerate(SPECIAL + WORDS)}
CONFIG = {
    "_name_or_path": "somebody/small-bert",
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "layer_norm_eps": EPSILON,
    "max_position_embeddings": POSITIONS,
    "vocab_size": len(VOCABULARY),
    "pad_token_id": 0,
}


def weights(seed=0, width=WIDTH, inner=INNER, words=WORDS_AND_SPECIAL):
    chance = np.random.default_rng(seed)

    def given(*shape):
        return chance.normal(size=shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": given(words, width),
        "embeddings.position_embeddings.weight": given(POSITIONS, width),
        "embeddings.token_type_embeddings.weight": given(2, width),
    }
    sizes = {"embeddings.LayerNorm": (width,)}
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        sizes |= {f"{name}.attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        sizes |= {f"{name}.attention.output.dense": (width, width), f"{name}.attention.output.LayerNorm": (width,)}
        sizes |= {f"{name}.intermediate.dense": (inner, width), f"{name}.output.dense": (width, inner)}
        sizes[f"{name}.output.LayerNorm"] = (width,)
    for name, size in sizes.items():
        found[f"{name}.weight"], found[f"{name}.bias"] = given(*size), given(size[0])
    return found


def embedding(weights, ids):
    """What sentence-transformers makes of one text: the encoder's mean over the tokens, brought to length 1."""
    ids = np.asarray(ids)
    x = weights["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = _norm(weights, "embeddings.LayerNorm", x + weights["embeddings.token_type_embeddings.weight"][0])
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        query, key, value = (_linear(weights, f"{name}.attention.self.{part}", x) for part in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        size = WIDTH // HEADS
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            shares = np.exp(query[:, part] @ key[:, part].T / math.sqrt(size))
            mixed[:, part] = shares / shares.sum(axis=1, keepdims=True) @ value[:, part]
        x = _norm(
            weights, f"{name}.attention.output.LayerNorm", x + _linear(weights, f"{name}.attention.output.dense", mixed)
        )
        inner = _linear(weights, f"{name}.intermediate.dense", x)
        inner = inner / 2 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = _norm(weights, f"{name}.output.LayerNorm", x + _linear(weights, f"{name}.output.dense", inner))
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def _linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(weights, name, x):
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    return (x - x.mean(axis=-1, keepdims=True)) / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def manifest(folder):
    return TextManifest(
        folder=folder,
        name="small-bert",
        model="model.onnx",
        tokenizer="tokenizer.json",
        max_tokens=MAX_TOKENS,
        max_windows=2,
        begin_ids=(2,),
        end_id=3,
        vocab_size=len(VOCABULARY),
        unknown_id=1,
        pad_id=0,
        width=WIDTH,
        labels=LABELS,
    )


def tokenizer():
    core = tokenizers.Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return core


def write_safetensors(file: Path, tensors):
    head, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        data = array.astype(np.float32).tobytes()
        head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return file


def write(folder: Path, seed=0, **config):
    """The files that a model on the hub has."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MAX_TOKENS}))
    tokenizer().save(str(folder / "tokenizer.json"))
    write_safetensors(folder / "model.safetensors", weights(seed))
    return folder
