"""Finds a model's tokenizer, in the three places where it may lie, and loads it.

A Hugging Face folder and a GGUF of a byte-level BPE are read by `tokenizers`; a tokenizer.model and a GGUF of a
SentencePiece model by `sentencepiece`. Both libraries are heavy, so the router must not import this file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import tokenizers

from bls.manifest import Manifest
from bls.tokens import gguf, gguf_tokenizer
from bls.tokens.huggingface import FastTokenizer
from bls.tokens.sentencepiece_tokenizer import SentencePieceTokenizer
from bls.tokens.tokenizer import BadTokenizer, Settings, Tokenizer

_MAIN_FILE = {"huggingface": "tokenizer.json", "sentencepiece": "tokenizer.model"}
_CONFIG, _SPECIAL_TOKENS, _TEMPLATE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"


def load(manifest: Manifest) -> Tokenizer:
    """Raises BadTokenizer with the file's name."""
    return load_file(manifest.tokenizer.kind, manifest.tokenizer_path)


def load_file(kind: str, path: Path) -> Tokenizer:
    """`path` is a GGUF file, a Hugging Face folder (or its tokenizer.json), or a tokenizer.model (or its folder)."""
    try:
        if kind == "gguf":
            return _load_gguf(path)
        file = _main_file(kind, path)
        settings = _read_settings(file.parent)
        if kind == "huggingface":
            return FastTokenizer(tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8")), settings)
        return SentencePieceTokenizer(file.read_bytes(), settings)
    except BadTokenizer:
        raise
    except gguf.BadGguf as error:
        raise BadTokenizer(str(error)) from None
    except Exception as error:  # `tokenizers` raises a bare Exception, `sentencepiece` RuntimeError.
        raise BadTokenizer(f"{path.name} is not a {kind} tokenizer: {error}") from None


def digest(kind: str, path: Path) -> str:
    """sha256 of all that decides ids, text and prompts: what TokenizerFile.sha256 is meant to hold."""
    if kind == "gguf":
        return gguf.tokenizer_digest(path)
    file = _main_file(kind, path)
    summary = hashlib.sha256(file.read_bytes())
    for side in (file.parent / name for name in (_CONFIG, _SPECIAL_TOKENS, _TEMPLATE)):
        summary.update(hashlib.sha256(side.read_bytes() if side.is_file() else b"").digest())
    return summary.hexdigest()


def _main_file(kind: str, path: Path) -> Path:
    return path / _MAIN_FILE[kind] if path.is_dir() else path


def _load_gguf(path: Path) -> Tokenizer:
    metadata = gguf.read_metadata(path)
    settings = gguf_tokenizer.settings(metadata)
    kind = metadata.get("tokenizer.ggml.model")
    try:
        if kind == "gpt2":
            return FastTokenizer(gguf_tokenizer.byte_level(metadata), settings)
        if kind == "llama":
            return SentencePieceTokenizer(gguf_tokenizer.sentencepiece(metadata), settings)
    except KeyError as error:
        raise BadTokenizer(f"{path.name}: it has no {error.args[0]}") from None
    except BadTokenizer as error:
        raise BadTokenizer(f"{path.name}: {error}") from None
    raise BadTokenizer(f"{path.name}: tokenizer.ggml.model is {kind!r}; known: 'gpt2', 'llama'")


def _read_settings(folder: Path) -> Settings:
    """From the files that transformers writes beside a tokenizer; each may be missing."""
    fields = {**_read_json(folder / _SPECIAL_TOKENS), **_read_json(folder / _CONFIG)}
    file = folder / _TEMPLATE
    template = file.read_text(encoding="utf-8") if file.is_file() else fields.get("chat_template")
    if isinstance(template, list):  # Several templates by name.
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    bos, eos = _token_name(fields.get("bos_token")), _token_name(fields.get("eos_token"))
    return Settings(bos, eos, fields.get("add_bos_token"), template)


def _read_json(file: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return fields


def _token_name(entry: Any) -> str | None:
    """A token stands in these files as a string or as the fields of an AddedToken."""
    name: str | None = entry["content"] if isinstance(entry, dict) else entry
    return name
