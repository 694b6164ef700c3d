"""What every kind of tokenizer can do."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


class BadTokenizer(ValueError):
    """The tokenizer is missing, damaged or of a kind that isn't known; the message names the file."""


@dataclass(frozen=True)
class Settings:
    """What stands beside a vocabulary. `adds_bos` None leaves it to the tokenizer itself."""

    bos_token: str | None = None
    eos_token: str | None = None
    adds_bos: bool | None = None
    chat_template: str | None = None


class Tokenizer(ABC):
    """One vocabulary. Its ids are below `vocab_size`; `special_ids` are those of the special tokens, by name."""

    vocab_size: int
    special_ids: Mapping[str, int]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def chat_template(self) -> str | None:
        return self.settings.chat_template

    @cached_property
    def bos_id(self) -> int | None:
        return self.token_id(self.settings.bos_token)

    @cached_property
    def eos_id(self) -> int | None:
        return self.token_id(self.settings.eos_token)

    @abstractmethod
    def token_id(self, token: str | None) -> int | None:
        """The id of a token by its whole name; None if there is none."""

    @abstractmethod
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of `text`; special tokens written in it are taken as such. With `add_special_tokens` a prompt of a model
        that wants a BOS gets one, unless `text` begins with it."""

    @abstractmethod
    def encode_literally(self, text: str) -> list[int]:
        """Ids of `text` in which a special token's name is only characters."""

    @abstractmethod
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; broken UTF-8 shows as U+FFFD. Ids outside of the vocabulary are left out."""

    def encode_word(self, word: str) -> list[list[int]]:
        """The ids by which an engine may write `word`: none for "", two where a tokenizer puts a space before a text,
        since amid other text the word may stand with or without it."""
        spellings: list[list[int]] = []
        for ids in (_amid_text(lambda text: self.encode(text, False), word), self.encode(word, False)):
            if ids and ids not in spellings:
                spellings.append(ids)
        return spellings

    def split_special(self, text: str) -> list[str]:
        """`text` cut so that each special token's name is a piece of its own."""
        return [piece for piece in self._special_names.split(text) if piece]

    @cached_property
    def _special_names(self) -> re.Pattern[str]:
        longest_first = sorted(self.special_ids, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if longest_first else r"(?!)")

    def _known(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if 0 <= token < self.vocab_size]


def _amid_text(encode: Callable[[str], list[int]], word: str) -> list[int]:
    """The ids of `word` after a character that it doesn't merge with."""
    for character in "\n.":
        before, whole = encode(character), encode(character + word)
        if whole[: len(before)] == before:
            return whole[len(before) :]
    return []
