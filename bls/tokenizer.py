"""Text to token ids and back, for the three places where a model's tokenizer may lie.

A Hugging Face folder and a GGUF of a byte-level BPE are read by `tokenizers`; a tokenizer.model and a GGUF of a
SentencePiece model by `sentencepiece`. Both libraries are heavy, so the router must not import this file.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers

from bls import gguf, gguf_tokenizer
from bls.gguf_tokenizer import BadTokenizer
from bls.manifest import Manifest

_SIDE_FILES = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


@dataclass(frozen=True)
class Settings:
    """What stands beside a vocabulary. `adds_bos` None leaves it to the tokenizer's own post-processor."""

    bos_token: str | None = None
    eos_token: str | None = None
    adds_bos: bool | None = None
    chat_template: str | None = None


class Tokenizer(ABC):
    """One vocabulary. Ids outside of it are left out by `decode`, as both libraries' models may be padded."""

    vocab_size: int
    special_ids: Mapping[str, int]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def chat_template(self) -> str | None:
        return self.settings.chat_template

    @property
    def bos_id(self) -> int | None:
        return self.token_id(self.settings.bos_token)

    @property
    def eos_id(self) -> int | None:
        return self.token_id(self.settings.eos_token)

    @abstractmethod
    def token_id(self, token: str | None) -> int | None:
        """The id of a token, by its whole name; None for an unknown one."""

    @abstractmethod
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of `text`; special tokens written in it are taken as such. With `add_special_tokens` a prompt of a model
        that wants a BOS has one, also where `text` begins with it already."""

    @abstractmethod
    def encode_literally(self, text: str) -> list[int]:
        """Ids of `text` in which a special token's name is only characters."""

    @abstractmethod
    def encode_word(self, word: str) -> list[list[int]]:
        """The ids by which an engine may produce `word` amid other text: one or more spellings, none for ""."""

    @abstractmethod
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; broken UTF-8 shows as U+FFFD."""

    def split_special(self, text: str) -> list[str]:
        """`text` cut so that each special token's name is a piece of its own."""
        if not self.special_ids:
            return [text]
        if not hasattr(self, "_special_names"):
            longest_first = sorted(self.special_ids, key=len, reverse=True)
            self._special_names = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        return [piece for piece in self._special_names.split(text) if piece]


class FastTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, core: tokenizers.Tokenizer, settings: Settings) -> None:
        super().__init__(settings)
        core.no_padding()
        core.no_truncation()
        self.core = core
        self._literal: tokenizers.Tokenizer | None = None
        self.vocab_size = max(core.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        added = core.get_added_tokens_decoder()
        self.special_ids = {token.content: token_id for token_id, token in added.items() if token.special}

    def token_id(self, token: str | None) -> int | None:
        return None if token is None else self.core.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self.core.encode(text, add_special_tokens=add_special_tokens).ids
        bos = self.bos_id
        if not add_special_tokens or bos is None:
            return ids
        if self.settings.adds_bos and ids[:1] != [bos]:
            return [bos, *ids]
        written = text.startswith(self.settings.bos_token or "")
        added_twice = written and ids[:2] == [bos, bos] and not text.startswith(2 * (self.settings.bos_token or ""))
        unwanted = self.settings.adds_bos is False and not written and ids[:1] == [bos]
        return ids[1:] if added_twice or unwanted else ids

    def encode_literally(self, text: str) -> list[int]:
        if self._literal is None:
            self._literal = tokenizers.Tokenizer.from_str(self.core.to_str())
            self._literal.encode_special_tokens = True
        ids: list[int] = self._literal.encode(text, add_special_tokens=False).ids
        return ids

    def encode_word(self, word: str) -> list[list[int]]:
        alone: list[int] = self.core.encode(word, add_special_tokens=False).ids
        # A tokenizer that puts a space in front of a text would hide how the word stands within one.
        within = _after_newline(lambda text: self.core.encode(text, add_special_tokens=False).ids, word)
        return _distinct(within, alone)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        known = [token for token in ids if 0 <= token < self.vocab_size]
        return str(self.core.decode(known, skip_special_tokens=skip_special_tokens))


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model. Special tokens are its control pieces, which only a prompt's author can write."""

    def __init__(self, model: bytes, settings: Settings) -> None:
        self.core = sentencepiece.SentencePieceProcessor(model_proto=model)
        bos, eos = (self.core.id_to_piece(i) if i >= 0 else None for i in (self.core.bos_id(), self.core.eos_id()))
        super().__init__(
            Settings(settings.bos_token or bos, settings.eos_token or eos, settings.adds_bos, settings.chat_template)
        )
        self.vocab_size = self.core.get_piece_size()
        self.special_ids = {
            self.core.id_to_piece(token): token for token in range(self.vocab_size) if self.core.is_control(token)
        }
        self._special_by_id = {token: name for name, token in self.special_ids.items()}

    def token_id(self, token: str | None) -> int | None:
        if token is None:
            return None
        found: int = self.core.piece_to_id(token)
        return found if self.core.id_to_piece(found) == token else None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = []
        for piece in self.split_special(text):
            special = self.special_ids.get(piece)
            ids += self.core.encode(piece) if special is None else [special]
        bos = self.bos_id
        wants_bos = add_special_tokens and bos is not None and self.settings.adds_bos is not False
        return [bos, *ids] if wants_bos and bos is not None and ids[:1] != [bos] else ids

    def encode_literally(self, text: str) -> list[int]:
        ids: list[int] = self.core.encode(text) if text else []
        return ids

    def encode_word(self, word: str) -> list[list[int]]:
        return _distinct(_after_newline(lambda text: self.encode(text, False), word), self.encode(word, False))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        known = [token for token in ids if 0 <= token < self.vocab_size]
        if skip_special_tokens:
            return str(self.core.decode(known))
        # SentencePiece never shows a control piece; each one shown begins a new sentence.
        texts: list[str] = []
        sentence: list[int] = []
        for token in known:
            if token in self._special_by_id:
                texts += [str(self.core.decode(sentence)), self._special_by_id[token]]
                sentence = []
            else:
                sentence.append(token)
        return "".join([*texts, str(self.core.decode(sentence))])


def load(manifest: Manifest) -> Tokenizer:
    """Raises BadTokenizer with the file's name."""
    return load_file(manifest.tokenizer.kind, manifest.tokenizer_path)


def load_file(kind: str, path: Path) -> Tokenizer:
    """`path` is a GGUF file, a Hugging Face folder (or its tokenizer.json), or a tokenizer.model (or its folder)."""
    try:
        if kind == "gguf":
            return _load_gguf(path)
        file = path / _MAIN_FILE[kind] if path.is_dir() else path
        settings = _read_settings(file.parent)
        if kind == "huggingface":
            return FastTokenizer(tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8")), settings)
        return SentencePieceTokenizer(file.read_bytes(), settings)
    except BadTokenizer:
        raise
    except Exception as error:  # `tokenizers` raises bare Exception, `sentencepiece` RuntimeError.
        raise BadTokenizer(f"{kind} tokenizer {path.name}: {error}") from None


def digest(kind: str, path: Path) -> str:
    """sha256 of all that decides ids, text and prompts: what TokenizerFile.sha256 holds."""
    if kind == "gguf":
        return gguf.tokenizer_digest(path)
    file = path / _MAIN_FILE[kind] if path.is_dir() else path
    summary = hashlib.sha256()
    for part in (file, *(file.parent / name for name in _SIDE_FILES)):
        data = part.read_bytes() if part is file or part.is_file() else b""
        summary.update(hashlib.sha256(data).digest())
    return summary.hexdigest()


_MAIN_FILE = {"huggingface": "tokenizer.json", "sentencepiece": "tokenizer.model"}


def _load_gguf(path: Path) -> Tokenizer:
    metadata = gguf.read_metadata(path)
    found = gguf_tokenizer.read(metadata, path.name)
    settings = Settings(found.bos_token, found.eos_token, found.adds_bos, metadata.get("tokenizer.chat_template"))
    if found.model is not None:
        return SentencePieceTokenizer(found.model, settings)
    assert found.core is not None
    return FastTokenizer(found.core, settings)


def _read_settings(folder: Path) -> Settings:
    """From the files that transformers writes beside a tokenizer; each may be missing."""
    fields: dict[str, Any] = {**_read_json(folder / _SIDE_FILES[1]), **_read_json(folder / _SIDE_FILES[0])}
    file = folder / _SIDE_FILES[2]
    template = file.read_text(encoding="utf-8") if file.is_file() else fields.get("chat_template")
    if isinstance(template, list):  # Several templates by name.
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return Settings(
        _token_name(fields.get("bos_token")), _token_name(fields.get("eos_token")), fields.get("add_bos_token"), template
    )


def _read_json(file: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return fields


def _token_name(entry: Any) -> str | None:
    """A token stands in these files as a string or as the fields of an AddedToken."""
    return entry["content"] if isinstance(entry, dict) else entry


def _after_newline(encode: Any, word: str) -> list[int]:
    before, whole = encode("\n"), encode("\n" + word)
    # Where the newline merged with the word there is no such spelling.
    return whole[len(before) :] if whole[: len(before)] == before else []


def _distinct(*spellings: list[int]) -> list[list[int]]:
    kept: list[list[int]] = []
    for ids in spellings:
        if ids and ids not in kept:
            kept.append(ids)
    return kept
