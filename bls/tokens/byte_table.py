"""Token ids to text, a piece at a time, inside the router: no tokenizer library, only a memory-mapped table.

`byte_table_build` builds the table and proves it equal to the tokenizer, in a process that has the tokenizer.
All router processes share its pages. Joined, the pieces of a stream are what the tokenizer's own decode gives for all
ids at once, wherever the stream was cut; no piece holds half a character.

The file: a magic, the length of a JSON header, the header, where each id's bytes begin in the file (u32, and one more
for the end), the ids' kinds (u8), the ids' bytes.
"""

from __future__ import annotations

import codecs
import json
import mmap
import struct
from codecs import utf_8_decode
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from bls.tokens.stream_decoder import StreamDecoder as StreamDecoder
from bls.tokens.stream_decoder import WindowDecoder as WindowDecoder

if TYPE_CHECKING:
    pass

MAGIC = b"TOKBYTE1"
# How the tokenizer joins tokens: see the class of each.
BYTE_LEVEL, BYTE_FALLBACK, SENTENCEPIECE, UNSUPPORTED = "byte_level", "byte_fallback", "sentencepiece", "unsupported"
# Kinds of ids. In order: from SPECIAL on they are hidden, or from ABSENT on.
TEXT, BYTE, UNKNOWN, SPECIAL, ABSENT = range(5)

_PREFIX = struct.Struct("<8sI")
_REPLACEMENT = "\ufffd"


class BadByteTable(ValueError):
    """The table is missing, stale or damaged; the message names the file."""


@dataclass(frozen=True)
class Header:
    """`sha256` is the tokenizer's; `reason` says why a table is UNSUPPORTED; `strip_left` counts spaces that the
    tokenizer takes off the start of a text; `strips_all` is SentencePiece's remove_extra_whitespaces."""

    sha256: str
    joins: str
    vocab_size: int
    strip_left: int = 0
    strips_all: bool = False
    reason: str = ""
    builder_version: int = 1


class TokenBytes:
    """One open table; make a decoder of it for each stream. Safe to share between threads."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        """`data` is a whole file. Raises ValueError, TypeError or struct.error if it isn't one."""
        magic, size = _PREFIX.unpack(data[: _PREFIX.size])
        if magic != MAGIC:
            raise ValueError("its magic is wrong")
        start = _PREFIX.size + size
        self.header = Header(**json.loads(data[_PREFIX.size : start]))
        kinds = start + 4 * (self.header.vocab_size + 1)
        view = memoryview(data)
        self._data = data
        self._offsets = view[start:kinds].cast("I")
        self._kinds = view[kinds : kinds + self.header.vocab_size]
        if len(self._kinds) != self.header.vocab_size or self._offsets[-1] != len(data):
            raise ValueError("its size differs from what its header says")

    @property
    def is_supported(self) -> bool:
        """False where the tokenizer's decode can't be had from a table: use WindowDecoder."""
        return self.header.joins != UNSUPPORTED

    def decoder(self, skip_special_tokens: bool = True) -> StreamDecoder:
        """Raises BadByteTable if the table isn't supported."""
        decoder = _DECODERS.get(self.header.joins)
        if decoder is None:
            raise BadByteTable(f"there is no table for this tokenizer: {self.header.reason}")
        return decoder(self, skip_special_tokens)

    def kind(self, token: int) -> int:
        """ABSENT outside of the vocabulary."""
        return self._kinds[token] if 0 <= token < self.header.vocab_size else ABSENT

    def piece(self, token: int) -> bytes:
        """The bytes of a token that isn't ABSENT."""
        return self._data[self._offsets[token] : self._offsets[token + 1]]


class _TableDecoder(StreamDecoder):
    # Copied out of the table: each attribute on the way to a token's bytes costs as much as reading them.
    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        self._header, self._offsets, self._kinds, self._data = table.header, table._offsets, table._kinds, table._data
        self._vocab_size = table.header.vocab_size
        self._hidden_from = SPECIAL if skip_special_tokens else ABSENT
        self._held = b""


class _ByteLevelDecoder(_TableDecoder):
    """Tokens are bytes: all of them joined are decoded, U+FFFD for each broken sequence."""

    def push(self, ids: Sequence[int]) -> str:
        held, offsets, kinds = self._held, self._offsets, self._kinds
        for token in ids:
            if 0 <= token < self._vocab_size and kinds[token] < self._hidden_from:
                held += self._data[offsets[token] : offsets[token + 1]]
        try:
            text = held.decode()  # Nearly always whole, and then twice as fast as the call below.
            self._held = b""
        except UnicodeDecodeError:
            text, used = utf_8_decode(held, "replace", False)
            self._held = held[used:]
        return text

    def finish(self) -> str:
        return utf_8_decode(self._held, "replace", True)[0]


class _ByteFallbackDecoder(_TableDecoder):
    """Hugging Face's Replace, ByteFallback, Fuse, Strip: a run of byte tokens that isn't UTF-8 as a whole becomes one
    U+FFFD per byte, so a run is held until a text token ends it."""

    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        super().__init__(table, skip_special_tokens)
        self._run: list[bytes] = []
        self._to_strip = table.header.strip_left

    def push(self, ids: Sequence[int]) -> str:
        offsets, kinds, text = self._offsets, self._kinds, ""
        for token in ids:
            kind = kinds[token] if 0 <= token < self._vocab_size else ABSENT
            if kind >= self._hidden_from:
                continue
            piece = self._data[offsets[token] : offsets[token + 1]]
            if kind == BYTE:
                self._run.append(piece)
                continue
            if self._run:
                text += self._end_run()
            text += piece.decode()
        return self._strip(text) if self._to_strip else text

    def finish(self) -> str:
        return self._strip(self._end_run())

    def _end_run(self) -> str:
        run = b"".join(self._run)
        self._run = []
        try:
            return run.decode()
        except UnicodeDecodeError:
            return _REPLACEMENT * len(run)

    def _strip(self, text: str) -> str:
        while self._to_strip and text:
            if text[0] != " ":
                self._to_strip = 0
                break
            text, self._to_strip = text[1:], self._to_strip - 1
        return text


class _SentencePieceDecoder(_TableDecoder):
    """SentencePiece's own rules (0.2): in a run of byte pieces each byte that is no part of a character becomes U+FFFD;
    leading spaces are taken off the first pieces; a control piece, if shown, begins a new sentence."""

    def __init__(self, table: TokenBytes, skip_special_tokens: bool) -> None:
        super().__init__(table, skip_special_tokens)
        self._begin_sentence()

    def _begin_sentence(self) -> None:
        self._at_start = self._header.strip_left > 0
        self._took_space = self._wrote = False

    def push(self, ids: Sequence[int]) -> str:
        offsets, kinds, text = self._offsets, self._kinds, ""
        for token in ids:
            kind = kinds[token] if 0 <= token < self._vocab_size else ABSENT
            if kind == ABSENT:
                continue
            piece = self._data[offsets[token] : offsets[token + 1]]
            if kind == BYTE:
                text += self._decode(piece, False)
                continue
            if self._held:
                text += self._decode(b"", True)
            if kind == SPECIAL and self._hidden_from > SPECIAL:
                text += piece.decode()
                self._begin_sentence()
            elif self._at_start:
                text += self._first("" if kind == SPECIAL else piece.decode(), kind)
            elif kind != SPECIAL:
                text += piece.decode()
        return text

    def finish(self) -> str:
        return self._decode(b"", True)

    def _decode(self, more: bytes, is_end: bool) -> str:
        """The characters that the held bytes and `more` make."""
        data = self._held + more
        text, used = utf_8_decode(data, _EACH_BYTE, is_end)
        self._held = data[used:]
        self._wrote = self._wrote or bool(text)
        return text

    def _first(self, text: str, kind: int) -> str:
        """The text of a piece before which nothing, or one space that was taken off, was written."""
        if self._wrote or self._took_space:
            self._at_start = False
        elif kind == TEXT and text.startswith(" "):
            text = text[1:]
            self._took_space = not self._header.strips_all
        self._wrote = self._wrote or bool(text)
        return text


def open_table(path: Path, sha256: str | None = None) -> TokenBytes:
    """Costs next to nothing, whatever the size. Raises BadByteTable, also for a table of another tokenizer."""
    try:
        with path.open("rb") as file:
            table = TokenBytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise BadByteTable(f"{path.name} is missing: the model `preprocessing` builds it when it loads") from None
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise BadByteTable(f"{path.name} is not a readable token table: {error}") from None
    if sha256 is not None and table.header.sha256 != sha256:
        raise BadByteTable(f"{path.name} belongs to another tokenizer: reload the model `preprocessing`")
    return table


def serialize(header: Header, kinds: Sequence[int], pieces: Sequence[bytes]) -> bytes:
    """The whole file."""
    text = json.dumps(asdict(header)).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % 8)  # The offsets are read in place, so they are aligned.
    prefix = _PREFIX.pack(MAGIC, len(text)) + text
    first = len(prefix) + 4 * (len(pieces) + 1) + len(kinds)
    offsets = list(accumulate(map(len, pieces), initial=first))
    return prefix + struct.pack(f"<{len(offsets)}I", *offsets) + bytes(kinds) + b"".join(pieces)


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _REPLACEMENT * (error.end - error.start), error.end


_EACH_BYTE = "token_bytes.each_byte"
codecs.register_error(_EACH_BYTE, _each_byte)

_DECODERS: dict[str, Callable[[TokenBytes, bool], StreamDecoder]] = {
    BYTE_LEVEL: _ByteLevelDecoder,
    BYTE_FALLBACK: _ByteFallbackDecoder,
    SENTENCEPIECE: _SentencePieceDecoder,
}
