"""Text in disguise: base64, and the invisible letters of Unicode's tag block, which a tokenizer may still read."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

MAX_RUNS = 32  # of one text that are decoded
MAX_RUN_CHARACTERS = 20_000

# Each starts where no such character stands before it, and repeats one class: nothing is tried twice.
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{20,}")
_TAGS = re.compile("[\U000e0020-\U000e007e]{6,}")  # fewer are the flag of a region
_FLAG = "\U0001f3f4"
_WRAPPED = re.compile(r"(?<=[A-Za-z0-9+/])\r?\n(?=[A-Za-z0-9+/])")
_UNWRAP_FROM = 60  # characters; lines of base64 are 64 or 76 long
_URL_SAFE = str.maketrans("-_", "+/")


def hidden_texts(text: str) -> Iterator[tuple[str, str]]:
    """("base64" or "invisible", what it says), of at most MAX_RUNS runs of each."""
    for number, run in enumerate(_BASE64.finditer(_unwrapped(text))):
        if number == MAX_RUNS:
            break
        if decoded := _decoded(run[0][:MAX_RUN_CHARACTERS]):
            yield "base64", decoded
    if not text.isascii():
        for number, run in enumerate(_TAGS.finditer(text)):
            if number == MAX_RUNS:
                break
            if text[max(0, run.start() - 1) : run.start()] != _FLAG:
                yield "invisible", "".join(chr(ord(letter) - 0xE0000) for letter in run[0])


def _unwrapped(text: str) -> str:
    """With the lines of one run joined: those as long as encoders make them."""
    if "\n" not in text or max(map(len, text.split("\n"))) < _UNWRAP_FROM:
        return text
    return _WRAPPED.sub("", text)


def _decoded(run: str) -> str:
    """What it says if it is base64 of a text, else nothing."""
    run = run.translate(_URL_SAFE)
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        text = base64.b64decode(run + "=" * (-len(run) % 4), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if text.replace("\n", "").replace("\r", "").replace("\t", "").isprintable() else ""
