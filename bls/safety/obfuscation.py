"""Text in disguise: base64, hexadecimal, %20 escapes, and the invisible letters of Unicode's tag block.

A model may well read these where a list of words or patterns does not.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

MAX_RUNS = 32  # of one kind in one text that are decoded
MAX_RUN_CHARACTERS = 20_000

_SHORTEST_RUN = 20
# Each starts where no such character stands before it, and repeats one class: nothing is tried twice.
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{20,}")
_HEX = re.compile(r"(?:0x)?((?:[0-9A-Fa-f]{2})+)\Z")
_ESCAPE = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_FEWEST_ESCAPES = 2
_TAGS = re.compile("[\U000e0020-\U000e007e]{6,}")  # fewer are the flag of a region
_FLAG = "\U0001f3f4"
_WRAPPED = re.compile(r"\n(?<=[A-Za-z0-9+/]\n)(?=[A-Za-z0-9+/])")  # the rare character first
_UNWRAP_FROM = 60  # characters; lines of base64 are 64 or 76 long
_URL_SAFE = str.maketrans("-_", "+/")


def hidden_texts(text: str) -> Iterator[tuple[str, str]]:
    """("base64", "hex", "percent" or "invisible", what it says), of at most MAX_RUNS runs of each."""
    long_words = " ".join(word for word in _unwrapped(text).split() if len(word) >= _SHORTEST_RUN)
    for number, run in enumerate(_BASE64.finditer(long_words)):
        if number == MAX_RUNS:
            break
        for kind, decode in (("hex", _of_hex), ("base64", _of_base64)):
            if decoded := decode(run[0][:MAX_RUN_CHARACTERS]):
                yield kind, decoded
    if text.count("%") >= _FEWEST_ESCAPES and len(_ESCAPE.findall(text)) >= _FEWEST_ESCAPES:
        yield "percent", _ESCAPE.sub(lambda found: _of_bytes(found[0].replace("%", "")), text)
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
    return _WRAPPED.sub("", text.replace("\r\n", "\n"))


def _of_base64(run: str) -> str:
    run = run.translate(_URL_SAFE)
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        return _readable(base64.b64decode(run + "=" * (-len(run) % 4), validate=True))
    except binascii.Error:
        return ""


def _of_hex(run: str) -> str:
    found = _HEX.match(run)
    return _readable(bytes.fromhex(found[1])) if found else ""


def _of_bytes(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-8", "replace")


def _readable(data: bytes) -> str:
    """The text that it is; nothing if it is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return text if text.translate(_LINES).isprintable() else ""


_LINES = str.maketrans("\n\r\t", "   ")
