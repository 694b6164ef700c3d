"""Reads single values out of arrays of any shape, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping

from bls.arrays import Array, read_text
from bls.errors import BadRequest

# Each word is looked for at each character of the answer.
MAX_WORDS = 64
MAX_WORD_CHARACTERS = 256

# What releases of tensorrt_llm_bls and of its engines called inputs that have another name today.
OLD_NAMES = {
    "random_seed": "seed",
    "min_length": "min_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
}


def with_todays_names(tensors: Mapping[str, Array]) -> Mapping[str, Array]:
    """Raises BadRequest where one is given by both names."""
    for old, new in OLD_NAMES.items():
        if old in tensors and new in tensors:
            raise BadRequest(f"{old} and {new} are both given; {old} is the old name of {new}")
    return {OLD_NAMES.get(name, name): array for name, array in tensors.items()}


class Fields:
    """Reads single values out of arrays of any shape, with errors that name the field."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors

    def single(self, name: str) -> Array:
        array = self._tensors[name]
        if array.size != 1:
            raise BadRequest(f"{name} holds {array.size} values; it must be a single value")
        return array

    def means_something(self, name: str) -> bool:
        """Whether it was given and is not empty, false or 0: clients send those for "not used"."""
        array = self._tensors.get(name)
        return array is not None and any(value not in (b"", "") and bool(value) for value in array.flat)

    def integer(self, name: str) -> int | None:
        return int(self.single(name).flat[0]) if name in self._tensors else None

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.single(name).flat[0]) if name in self._tensors else default

    def string(self, name: str) -> str | None:
        return read_text(self.single(name).flat[0], name) if name in self._tensors else None

    def words(self, name: str) -> tuple[str, ...]:
        """The strings that are not empty: clients of the peer send [""] for none."""
        values = self._tensors[name].flat if name in self._tensors else ()
        words = tuple(text for text in (read_text(value, name) for value in values) if text)
        if len(words) > MAX_WORDS:
            raise BadRequest(f"{name} holds {len(words)} words; at most {MAX_WORDS} are taken")
        if any(len(word) > MAX_WORD_CHARACTERS for word in words):
            longest = max(map(len, words))
            raise BadRequest(f"{name} holds a word of {longest} characters; at most {MAX_WORD_CHARACTERS} are taken")
        return words
